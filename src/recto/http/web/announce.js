// Says aloud, to those who do not see the page, what has changed on it.

import { byId } from "./dom.js";

let waiting;

export function announce(words) {
  const region = byId("live");
  clearTimeout(waiting);
  region.textContent = "";
  // The same words twice in a row are only read again if the region was empty in between.
  waiting = setTimeout(() => { region.textContent = words; }, 60);
}
