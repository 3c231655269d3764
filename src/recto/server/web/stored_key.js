// The API key of this tab; storage may be forbidden, then the key is kept until the page is left.

const KEY = "recto-key";
let unstoredKey = "";

export function storedKey() {
  try {
    return sessionStorage.getItem(KEY) ?? unstoredKey;
  } catch {
    return unstoredKey;
  }
}

export function storeKey(value) {
  unstoredKey = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // Kept in `unstoredKey`.
  }
}
