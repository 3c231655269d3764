// The service's key: asked for once, kept for this tab alone.

import { byId } from "./dom.js";

const NAME = "recto-key";
let unstored = "";
let asking = null;

export function key() {
  try {
    return sessionStorage.getItem(NAME) ?? unstored;
  } catch {
    return unstored;
  }
}

function keep(value) {
  unstored = value;
  try {
    sessionStorage.setItem(NAME, value);
  } catch {
    // Storage may be forbidden; the key then lasts until the page is left.
  }
}

/** Ask for a key; resolves to whether one was given. Requests that are refused together ask together. */
export function askForKey(refused) {
  if (refused !== key()) return Promise.resolve(true); // another request has asked in the meantime
  asking ??= show(refused !== "").finally(() => { asking = null; });
  return asking;
}

function show(wasWrong) {
  const dialog = byId("key");
  const input = byId("key-input");
  byId("key-wrong").hidden = !wasWrong;
  input.value = "";
  input.setAttribute("aria-describedby", wasWrong ? "key-wrong key-help" : "key-help");
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "use" ? input.value.trim() : "";
      input.value = "";
      if (given) keep(given);
      resolve(given !== "");
    }, { once: true });
    dialog.showModal();
    input.focus();
  });
}
