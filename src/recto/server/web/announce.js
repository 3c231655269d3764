// Says aloud, to those who do not see the page, what has changed on it.

import { byId } from "./dom.js";

const PAUSE = 100; // milliseconds; what changes together is said together
let said = [];
let waiting;

export function announce(words) {
  const region = byId("live");
  said.push(words);
  clearTimeout(waiting);
  region.textContent = ""; // the same words twice in a row are only read again if there was nothing in between
  waiting = setTimeout(() => {
    region.textContent = said.join(". ");
    said = [];
  }, PAUSE);
}
