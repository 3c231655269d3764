// The texts of the widget, in the language of the page; a site replaces them with `data-strings`.

const LANGUAGES = ["ar", "de", "es", "fr", "ja", "pt", "ur", "zh"]; // each has a file `strings_*.js`

const ENGLISH = {
  search: "Search",
  searchLabel: "Search the book",
  placeholder: "Search or ask a question",
  results: "Results",
  close: "Close",
  clear: "Clear the field",
  recent: "Recent searches",
  clearRecent: "Clear",
  related: "Related in this book",
  relatedTo: "Related to the selected text",
  selection: "Selected text",
  question: "Ask about this text (optional)",
  ask: "Ask",
  found: "{passages} passages on {pages} pages",
  foundOne: "1 passage",
  foundFlat: "{passages} passages",
  nothing: "Nothing found for “{query}”.",
  nothingRelated: "Nothing else in the book is related to this text.",
  notCovered: "The book does not seem to cover this.",
  nearest: "Nearest passages",
  corrected: "Searched for {meant} instead of “{word}”.",
  loadingMeaning: "Loading the search by meaning: {percent} %",
  wordsOnly: "The search by meaning is not available. These results contain your words.",
  offline: "The search cannot be reached. Check your connection and try again.",
  busy: "The search is not available at the moment. Try again in a minute.",
  limited: "Too many searches. Trying again in {seconds} seconds.",
  refused: "The search is not available on this page.",
  failed: "The search failed. Try again.",
  tooLong: "The text is too long to search for.",
  tryAgain: "Try again",
  unpublished: "not published",
  askModel: "Answer this question",
  answer: "Answer",
  answering: "Reading the book…",
  stop: "Stop",
  stopped: "Stopped.",
  source: "Source {number}: {title}",
  sources: "Sources",
  answerNote: "Written by a language model from these sources. Check them.",
  helpful: "Helpful",
  notHelpful: "Not helpful",
  answerFailed: "The answer could not be completed.",
  answersSpent: "There are no more answers today. You can still search.",
  answersLimited: "Too many questions. Try again in {seconds} seconds.",
  copyPage: "Copy page",
  copied: "Copied",
  notCopied: "Not copied",
  pageActions: "More actions for this page",
  viewMarkdown: "View as Markdown",
  openIn: "Open in {name}",
  assistantPrompt: "Read {url} so that I can ask questions about it.",
  addTo: "Add to {name}",
  copyMcp: "Copy MCP configuration",
  hintMove: "move",
  hintOpen: "open",
  hintClose: "close",
};

/** Return the texts in a language, or the English ones if there are none. */
export async function textsFor(language) {
  const tag = language.toLowerCase().split(/[-_]/u)[0];
  return LANGUAGES.includes(tag) ? (await import(`./strings_${tag}.js`)).default : ENGLISH;
}

/** Return a function that fills the values into a text by its name. */
export function translator(own, translated = ENGLISH) {
  const texts = { ...ENGLISH, ...translated };
  for (const [name, text] of Object.entries(own ?? {})) {
    if (name in ENGLISH && typeof text === "string") texts[name] = text;
    else console.warn(`Recto: data-strings has no text "${name}".`);
  }
  return (name, values = {}) =>
    texts[name].replace(/\{(\w+)\}/gu, (whole, key) => (key in values ? String(values[key]) : whole));
}
