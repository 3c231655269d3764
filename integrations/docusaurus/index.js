// A Docusaurus plugin: the script tag of the Recto widget on every page, and a button in place of the search bar.

const {execFileSync} = require('node:child_process');
const path = require('node:path');

const NAME = 'recto-docusaurus';
const ADMIN_KEY = 'recto_sk_';
const COLLECTION = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/u;
const KNOWN = ['assistants', 'collection', 'id', 'key', 'mcp', 'pageActions', 'related', 'server', 'static', 'strings'];
const STATIC = 'recto'; // the directory of the static search in the built site

module.exports = function rectoPlugin(context, options) {
  const {baseUrl, i18n, siteConfig} = context;

  return {
    name: NAME,

    getThemePath: () => path.join(__dirname, 'theme'),

    getClientModules: () => [path.join(__dirname, 'recto.css')],

    // The texts are the content of the plugin, so that `docusaurus write-translations` lists them.
    loadContent: () => options.strings,

    getTranslationFiles: ({content}) => [
      {path: 'strings', content: mapValues(content, (message) => ({message}))},
    ],

    translateContent: ({content, translationFiles}) => ({
      ...content,
      ...mapValues(translationFiles[0].content, ({message}) => message),
    }),

    contentLoaded({content, actions}) {
      actions.setGlobalData({label: content.search ?? 'Search'});
    },

    injectHtmlTags({content}) {
      const attributes = {
        type: 'module',
        src: options.static ? `${baseUrl}${STATIC}/widget.js` : `${options.server}widget.js`,
      };
      if (!options.static) attributes['data-collection'] = collectionOf(options, i18n.currentLocale);
      if (options.key) attributes['data-key'] = options.key;
      if (!options.related) attributes['data-related'] = 'off';
      if (options.pageActions) attributes['data-page-actions'] = 'on';
      if (options.assistants) attributes['data-assistants'] = JSON.stringify(options.assistants);
      if (options.mcp) attributes['data-mcp'] = options.mcp;
      if (Object.keys(content).length) attributes['data-strings'] = JSON.stringify(content);
      if (process.env.NODE_ENV === 'development') {
        // The index has the addresses of the published site; in a preview, links stay in the preview.
        attributes['data-rewrite'] = `${siteConfig.url.replace(/\/$/u, '')}${baseUrl} ${baseUrl}`;
      }
      return {headTags: [{tagName: 'script', attributes}]};
    },

    /** Index the site, and write the static search into it. */
    postBuild({outDir}) {
      if (!options.static) return;
      const {currentLocale, defaultLocale} = i18n;
      const collection = ['--collection', collectionOf(options, currentLocale)];
      const locale = currentLocale === defaultLocale ? [] : ['--locale', currentLocale];
      // The configuration may compute its address. Recto adds the locale itself.
      const base = locale.length ? baseUrl.replace(new RegExp(`/${currentLocale}/$`, 'u'), '/') : baseUrl;
      const address = ['--site-url', new URL(base, siteConfig.url).href, '--new-urls'];
      recto(['index', context.siteDir, ...collection, ...address, ...locale]);
      recto(['export', '--static', path.join(outDir, STATIC), ...collection]);
    },
  };
};

module.exports.validateOptions = ({options}) => {
  for (const name of Object.keys(options)) {
    if (!KNOWN.includes(name)) throw problem(`there is no option "${name}"`, `The options are ${KNOWN.join(', ')}.`);
  }
  const {id = 'default', server = '/recto/', collection, key, related = true, strings = {}} = options;
  const isStatic = options.static ?? false;
  if (typeof isStatic !== 'boolean') throw problem('"static" is not true or false', 'It is false by default.');
  if (isStatic && (key || options.server)) throw problem('"static" needs no "server" and no "key"', 'Remove them.');
  const {assistants, mcp, pageActions = false} = options;
  if (typeof server !== 'string' || !/^(?:\/|https?:\/\/[^/])/u.test(server)) {
    throw problem(
      '"server" is not an address',
      'Write where `recto serve` is reachable, such as "/recto/" or "https://search.example.org/".',
    );
  }
  const names = isObject(collection) ? Object.values(collection) : [collection];
  if (!names.length || !names.every((name) => typeof name === 'string' && COLLECTION.test(name))) {
    throw problem(
      '"collection" is not the name of a collection',
      'Use the name that you pass to `recto index --collection`, or an object with one name for each locale.',
    );
  }
  if (key !== undefined && typeof key !== 'string') throw problem('"key" is not a string', 'Leave it out if the service needs no key.');
  if (key?.startsWith(ADMIN_KEY)) {
    throw problem(
      '"key" is an admin key, which must not be published',
      'Create one for the pages with: recto keys add NAME --collection NAME --origin ORIGIN',
    );
  }
  if (typeof related !== 'boolean') throw problem('"related" is not true or false', 'It is true by default.');
  if (typeof pageActions !== 'boolean') throw problem('"pageActions" is not true or false', 'It is false by default.');
  if (mcp !== undefined && typeof mcp !== 'string') throw problem('"mcp" is not an address', 'Write it as "https://search.example.org/mcp".');
  if (assistants !== undefined && !isTexts(assistants)) {
    throw problem('"assistants" is not an object of addresses', 'Write it as {Name: "https://assistant.example/?q={prompt}"}.');
  }
  if (!isTexts(strings)) {
    throw problem('"strings" is not an object of texts', 'Write it as {search: "Find"}.');
  }
  return {id, server: `${server.replace(/\/+$/u, '')}/`, collection, key, related, strings, static: isStatic, assistants, mcp, pageActions};
};

/** Run Recto, and show its output; an error fails the build. */
function recto(values) {
  try {
    execFileSync('recto', values, {stdio: 'inherit'});
  } catch (error) {
    if (error.code === 'ENOENT') throw problem('the command `recto` is not installed', 'Install Recto for the user who builds the site: its guide is docs/how-to/install.md.');
    throw problem(`\`recto ${values[0]}\` failed`, 'Its message is above.');
  }
}

function collectionOf({collection}, locale) {
  if (!isObject(collection)) return collection;
  if (collection[locale]) return collection[locale];
  throw problem(`"collection" has no name for the locale "${locale}"`, `It has ${Object.keys(collection).join(', ')}.`);
}

function problem(message, hint) {
  return new Error(`${NAME}: ${message}. ${hint}`);
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTexts(value) {
  return isObject(value) && Object.values(value).every((text) => typeof text === 'string');
}

function mapValues(object, change) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));
}
