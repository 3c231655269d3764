// Accessibility problems that a program can find: names, landmarks, headings, contrast.
() => {
    const problems = [];
    const seen = (one) => one.checkVisibility({ opacityProperty: false, visibilityProperty: true });
    const show = (one) => one.outerHTML.replace(/\s+/g, " ").slice(0, 110);
    const words = (ids) => ids.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const name = (one) => (one.getAttribute("aria-label")
        ?? (one.hasAttribute("aria-labelledby") ? words(one.getAttribute("aria-labelledby")) : null)
        ?? (one.labels?.length ? [...one.labels].map((label) => label.textContent).join(" ") : null)
        ?? one.textContent).trim();

    // Names: of controls, of pictures, and those that are referred to.
    for (const one of document.querySelectorAll("a[href], button, input, select, textarea, summary, [role=img], dialog, nav, [role=group], [tabindex='0']")) {
        if ((seen(one) || one.matches("dialog")) && !name(one)) problems.push("no name: " + show(one));
    }
    for (const one of document.querySelectorAll("input:not([type=hidden]), select")) {
        if (!one.labels.length && !one.hasAttribute("aria-label")) problems.push("no label: " + show(one));
    }
    for (const attribute of ["aria-labelledby", "aria-describedby", "for"]) {
        for (const one of document.querySelectorAll(`[${attribute}]`)) {
            if (!seen(one) && !one.closest("dialog")) continue;
            for (const id of one.getAttribute(attribute).split(/\s+/)) if (!document.getElementById(id)) problems.push(`${attribute} has no target: ` + show(one));
        }
    }
    const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
    for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) problems.push("twice: #" + id);
    for (const one of document.querySelectorAll("svg")) if (!one.hasAttribute("aria-hidden") && one.getAttribute("role") !== "img") problems.push("unnamed picture: " + show(one));
    for (const one of document.querySelectorAll("[aria-hidden=true] :is(a, button, input)")) problems.push("hidden control: " + show(one));

    // The document: language, title, landmarks, headings that do not skip a level.
    if (!document.documentElement.lang) problems.push("no language");
    if (!document.title) problems.push("no title");
    for (const landmark of ["main", "header", "nav", "[role=search], search"]) if (!document.querySelector(landmark)) problems.push("no " + landmark);
    if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
    const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((one) => seen(one) && !one.closest("dialog"));
    headings.forEach((one, place) => {
        const level = Number(one.localName[1]);
        const before = place ? Number(headings[place - 1].localName[1]) : 0;
        if (level > before + 1) problems.push(`h${level} after h${before}: ` + show(one));
        if (!one.textContent.trim()) problems.push("empty heading: " + show(one));
    });
    if (headings.filter((one) => one.localName === "h1").length !== 1) problems.push("not one h1");
    for (const one of document.querySelectorAll("ul, ol")) {
        for (const child of one.children) if (child.localName !== "li") problems.push("not a list item: " + show(child));
    }
    for (const one of document.querySelectorAll("[tabindex]")) if (one.tabIndex > 0) problems.push("tab order is forced: " + show(one));
    for (const one of document.querySelectorAll("pre, .table")) {
        if (seen(one) && one.scrollWidth > one.clientWidth + 1 && one.tabIndex < 0) problems.push("cannot be scrolled by keys: " + show(one));
    }

    // Contrast of text against what is behind it, and of a control's edge.
    const parse = (text) => { const [r, g, b, a = 1] = (text.match(/[\d.]+/g) ?? []).map(Number); return { r, g, b, a }; };
    const over = (top, under) => ({ r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a), b: top.b * top.a + under.b * (1 - top.a), a: 1 });
    const light = ({ r, g, b }) => [r, g, b].map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
    const ratio = (one, other) => { const [low, high] = [light(one), light(other)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
    const behind = (one) => {
        const layers = [];
        for (let at = one; at; at = at.parentElement) layers.unshift(parse(getComputedStyle(at).backgroundColor));
        return layers.reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const judged = new Set();
    while (walker.nextNode()) {
        const one = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || judged.has(one) || !seen(one) || one.closest("svg, .visually-hidden, option, optgroup")) continue;
        judged.add(one);
        const style = getComputedStyle(one);
        const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
        const ground = behind(one);
        const found = ratio(over(parse(style.color), ground), ground);
        if (found < (large ? 3 : 4.5)) problems.push(`contrast ${found.toFixed(2)}: ` + show(one));
    }
    if (judged.size < 10) problems.push("nothing was judged");
    for (const one of document.querySelectorAll("input[type=search], input[type=password], select")) {
        if (!seen(one)) continue;
        const found = ratio(parse(getComputedStyle(one).borderTopColor), behind(one.parentElement));
        if (found < 3) problems.push(`edge ${found.toFixed(2)}: ` + show(one));
    }
    return problems;
}
