// The style of the widget. A constructed style sheet works under a content security policy without inline styles.

const CSS = `
:host {
  all: initial;
  position: absolute; inset: 0 auto auto 0; width: 0; height: 0;
  color-scheme: light;
  --accent: var(--recto-accent, light-dark(#3b5bdb, #91a7ff));
  --background: var(--recto-background, light-dark(#ffffff, #1e1f22));
  --surface: var(--recto-surface, light-dark(#f4f5f7, #2a2b2f));
  --text: var(--recto-text, light-dark(#1c1e21, #e6e6e8));
  --muted: var(--recto-muted, light-dark(#5a606b, #a7adb8));
  --border: var(--recto-border, light-dark(#d5d9e0, #44464d));
  --mark: var(--recto-mark, light-dark(#ffe9a8, #5d4a10));
  --tint: color-mix(in srgb, var(--accent) 13%, var(--background));
  --shadow: 0 12px 40px rgb(0 0 0 / .25), 0 2px 8px rgb(0 0 0 / .15);
  font-family: var(--recto-font, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Noto Sans", Arial, sans-serif);
  font-size: 16px; line-height: 1.5;
}
:host([data-theme="dark"]) { color-scheme: dark; }
*, *::before, *::after { box-sizing: border-box; }
[hidden] { display: none !important; }
button, input { font: inherit; color: inherit; }
button { cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.separator { margin: 0 .4em; color: var(--muted); }
:dir(rtl) .separator { display: inline-block; transform: scaleX(-1); }
.icon { flex: none; width: 1.15em; height: 1.15em; fill: none; stroke: currentcolor; stroke-width: 2; stroke-linecap: round; }
.foot kbd { font: 600 .6875rem/1.5 inherit; font-family: inherit; padding: 0 .4em; border: 1px solid var(--border); border-radius: 4px; background: var(--background); color: var(--muted); white-space: nowrap; }
mark { background: var(--mark); color: var(--text); border-radius: 2px; padding: 0 .06em; }
.sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

.related { position: absolute; z-index: 910; padding: .35rem .8rem; font-size: .875rem; font-weight: 600; background: var(--background); color: var(--text); border: 1px solid var(--border); border-radius: 999px; box-shadow: var(--shadow); white-space: nowrap; }
.related:hover { border-color: var(--accent); background: var(--tint); }

dialog { width: min(42rem, calc(100vw - 2rem)); max-width: none; max-height: min(80vh, 44rem); margin: 10vh auto auto; padding: 0; border: 1px solid var(--border); border-radius: 12px; background: var(--background); color: var(--text); box-shadow: var(--shadow); overflow: hidden; }
dialog[open] { display: flex; flex-direction: column; }
dialog::backdrop { background: rgb(15 18 25 / .5); }
.head { position: relative; display: flex; align-items: center; gap: .75rem; padding: .9rem 1rem; border-bottom: 1px solid var(--border); }
.head .icon { color: var(--muted); }
.head input { flex: 1; min-width: 0; border: 0; background: none; font-size: 1.125rem; padding: .1rem 0; }
.head input:focus { outline: none; }
.head input::placeholder, .ask input::placeholder { color: var(--muted); opacity: 1; }
.head:focus-within::after { content: ""; position: absolute; inset: auto 0 -1px; height: 2px; background: var(--accent); }
.plain { border: 1px solid transparent; border-radius: 6px; background: none; color: var(--muted); padding: .25rem .5rem; font-size: .8125rem; line-height: 1.2; }
.plain:hover { color: var(--text); border-color: var(--border); }
.busy .head::before { content: ""; position: absolute; inset: auto auto -1px 0; z-index: 1; width: 30%; height: 2px; background: var(--text); opacity: 0; animation: wait 1.2s .3s ease-in-out infinite; }
@keyframes wait { 0%, 100% { opacity: 1; inset-inline-start: 0; } 50% { opacity: 1; inset-inline-start: 70%; } }

.body { flex: 1; min-height: 0; overflow-y: auto; overscroll-behavior: contain; padding-bottom: .5rem; }
.message { margin: 0; padding: .9rem 1rem .4rem; color: var(--muted); font-size: .9375rem; }
.message strong { display: block; color: var(--text); font-size: 1rem; font-weight: 600; }
.note:empty { display: none; }
.message + .message { padding-top: 0; }
.message button { margin-inline-start: .5rem; text-decoration: underline; }
.group { padding: .35rem .5rem 0; }
.page { display: flex; align-items: baseline; padding: .6rem .5rem .25rem; font-size: .8125rem; color: var(--muted); }
.page strong { color: var(--text); font-weight: 600; font-size: .9375rem; }
.option { display: block; padding: .5rem .75rem; border-radius: 8px; border-inline-start: 3px solid transparent; color: inherit; text-decoration: none; cursor: pointer; scroll-margin: 3rem .5rem; }
.option[aria-selected="true"] { background: var(--tint); border-inline-start-color: var(--accent); outline: 1px solid transparent; }
.trail { display: block; font-size: .8125rem; color: var(--muted); }
.section { display: block; font-weight: 600; font-size: .9375rem; }
a.option:hover .section, a.hit:hover .section { text-decoration: underline; text-underline-offset: .2em; }
.snippet { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; font-size: .875rem; color: var(--muted); overflow-wrap: anywhere; }
.weak .section, .weak .page strong { font-weight: 500; }
.foot { display: flex; gap: 1.25rem; padding: .55rem 1rem; border-top: 1px solid var(--border); background: var(--surface); color: var(--muted); font-size: .75rem; }
.foot span { display: flex; gap: .35rem; align-items: center; }

.panel { position: fixed; z-index: 920; inset-block: 0; inset-inline-end: 0; width: min(26rem, 100vw); display: flex; flex-direction: column; background: var(--background); color: var(--text); border-inline-start: 1px solid var(--border); box-shadow: var(--shadow); }
.panel header { position: relative; display: flex; align-items: center; justify-content: space-between; gap: 1rem; padding: .9rem 1rem; border-bottom: 1px solid var(--border); }
.panel.busy header::before { content: ""; position: absolute; inset: auto auto -1px 0; width: 30%; height: 2px; background: var(--accent); opacity: 0; animation: wait 1.2s .3s ease-in-out infinite; }
.panel h2 { margin: 0; font-size: 1.0625rem; font-weight: 650; line-height: 1.3; }
.panel h2:focus { outline: none; }
.panel blockquote { margin: 1rem 1rem 0; padding: .1rem .8rem; border-inline-start: 3px solid var(--accent); color: var(--muted); font-size: .875rem; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; overflow-wrap: anywhere; }
.ask { display: flex; gap: .5rem; padding: .9rem 1rem .4rem; }
.ask input { flex: 1; min-width: 0; padding: .45rem .7rem; font-size: .9375rem; border: 1px solid var(--muted); border-radius: 8px; background: var(--background); }
.ask button { padding: .45rem .9rem; font-size: .9375rem; font-weight: 600; border: 1px solid var(--border); border-radius: 8px; background: var(--surface); }
.ask button:hover { border-color: var(--accent); background: var(--tint); }
.hits { list-style: none; margin: 0; padding: 0 .5rem; }
.hit { display: block; padding: .6rem .5rem; color: inherit; text-decoration: none; border-radius: 8px; }
.hit:hover { background: var(--tint); }
.hits li + li { border-top: 1px solid var(--border); }

.answer { padding: .75rem 1rem .25rem; border-bottom: 1px solid var(--border); font-size: .9375rem; }
.action { padding: .45rem .9rem; font-weight: 600; border: 1px solid var(--accent); border-radius: 8px; background: var(--tint); margin-bottom: .5rem; }
.action:hover { background: var(--surface); }
.top { display: flex; align-items: baseline; gap: .6rem; min-height: 1.75rem; }
.top strong:focus { outline: none; }
.top .state { flex: 1; color: var(--muted); }
.text { overflow-wrap: anywhere; }
.text p { margin: .4rem 0; white-space: pre-line; }
.text code { font: .875em ui-monospace, Consolas, monospace; background: var(--surface); border-radius: 4px; padding: .1em .3em; }
.text pre { margin: .5rem 0; padding: .6rem .75rem; overflow-x: auto; background: var(--surface); border-radius: 8px; }
.text pre code { padding: 0; }
.cite { display: inline-block; min-width: 1.5em; margin: 0 .1em; padding: 0 .35em; border-radius: 5px; background: var(--tint); color: var(--accent); font-size: .75em; font-weight: 700; line-height: 1.6; text-align: center; text-decoration: none; vertical-align: .15em; position: relative; }
a.cite:hover { background: var(--accent); color: var(--background); }
.note { margin: .5rem 0 .35rem; color: var(--muted); font-size: .8125rem; }
.note button { margin-inline-start: .25rem; font-size: 1rem; }
.note [aria-pressed="true"] { border-color: var(--accent); background: var(--tint); }
.sources { margin: 0; padding-inline-start: 1.4rem; color: var(--muted); font-size: .875rem; }
.sources li { padding-block: .15rem; }
.sources a { color: var(--accent); text-underline-offset: .2em; }

@media (max-width: 40rem) {
  dialog { width: 100vw; height: 100dvh; max-height: none; margin: 0; border: 0; border-radius: 0; }
  .foot { display: none; }
  .panel { inset: auto 0 0; width: 100vw; max-height: 70dvh; border-inline-start: 0; border-top: 1px solid var(--border); border-radius: 14px 14px 0 0; }
  .head input, .ask input { font-size: 16px; }
}
@media (hover: none) { .foot { display: none; } .hit, .option { padding-block: .75rem; } }
@media (prefers-reduced-motion: reduce) { .busy .head::before, .panel.busy header::before { animation: none; opacity: 1; width: 100%; } }
@media print { :host { display: none; } }
`;

export function sheet() {
  const made = new CSSStyleSheet();
  // A rem is the font size of the site's root element: 10 to 20 pixels.
  made.replaceSync(CSS.replace(/([\d.]+)rem\b/gu, (_, size) => `${size * 16}px`));
  return made;
}
