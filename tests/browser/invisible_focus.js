// The controls that look the same with the keyboard on them.
() => {
    const looks = (one) => {
        const { outlineStyle, outlineWidth, outlineColor, boxShadow, borderColor } = getComputedStyle(one);
        return [outlineStyle, outlineWidth, outlineColor, boxShadow, borderColor].join();
    };
    const box = (one) => one.nextElementSibling && one.matches(".module-filter input") ? one.nextElementSibling : one;
    return [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter((one) => one.checkVisibility()).filter((one) => {
        one.blur();
        const before = looks(box(one));
        one.focus({ preventScroll: true, focusVisible: true });
        const same = looks(box(one)) === before;
        one.blur();
        return same;
    }).map((one) => one.outerHTML.slice(0, 110));
}
