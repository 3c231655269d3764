// The texts of the web UI in the reader's language, by their English form; the details of the view "Health" are for operators, in English.

const LANGUAGES = ["ar", "de", "es", "fr", "ja", "pt", "ur", "zh"]; // each has a file in texts/
const RIGHT_TO_LEFT = ["ar", "ur"];

const tags = navigator.languages.map((tag) => tag.toLowerCase().split("-")[0]);
/** The first language of the browser that has texts. */
export const language = tags.find((tag) => tag === "en" || LANGUAGES.includes(tag)) ?? "en";
const texts = language === "en" ? {} : await load();

async function load() {
  try {
    return (await import(`./texts/${language}.js`)).default;
  } catch {
    return {}; // English is better than nothing
  }
}

/** Return a text in the reader's language, with its values filled in. */
export function t(text, values = {}) {
  return (texts[text] ?? text).replace(/\{(\w+)\}/gu, (whole, name) => values[name] ?? whole);
}

/** Return a number with the name of what is counted: "1 page", "2 pages". */
export function counted(number, one, many = `${one}s`) {
  return number === 1 ? t(`1 ${one}`) : t(`{n} ${many}`, { n: number.toLocaleString(language) });
}

/** Return a text that is read from left to right, also between words of Arabic. */
export const leftToRight = (text) => (RIGHT_TO_LEFT.includes(language) ? `\u2066${text}\u2069` : text);

/** Translate the elements that the page has from the start. */
export function translatePage() {
  document.documentElement.lang = language;
  document.documentElement.dir = RIGHT_TO_LEFT.includes(language) ? "rtl" : "ltr";
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.textContent);
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", t(element.getAttribute("aria-label")));
  }
}
