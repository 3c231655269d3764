// Links between the pages of a book, as its author wrote them, become links within this page.

/** Return what turns an address on a page into a change of state, or null if it leads out of the book. */
export function inBook(page, pages) {
  const known = new Map(pages.map(({ url }) => [plain(url), url]));
  return (written) => {
    let target;
    try {
      target = new URL(written, page.url);
    } catch {
      return null;
    }
    const anchor = decoded(target.hash.slice(1));
    target.hash = "";
    target.search = "";
    const url = known.get(plain(target.href));
    return url ? { page: url, anchor, passage: null, selection: "", ask: false } : null;
  };
}

/** An address without what differs between a file's name and its published place. */
function plain(url) {
  return decoded(url).replace(/\.(?:mdx?|html?)$/iu, "").replace(/\/(?:index|readme)$/iu, "").replace(/\/\d+[-_. ]+(?=[^/]+)/gu, "/").replace(/\/+$/u, "").toLowerCase();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
