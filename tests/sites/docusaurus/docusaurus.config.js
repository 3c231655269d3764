// A small site with the preset that most sites use; the tests write its docs.

const isStatic = process.env.STATIC === '1'; // the same site, which is searched without a server

module.exports = {
  title: 'House',
  url: isStatic ? 'http://docusaurus-static.localhost' : 'http://docusaurus.localhost',
  baseUrl: '/',
  trailingSlash: true,
  onBrokenLinks: 'ignore',
  onBrokenAnchors: 'ignore',
  // The HTML minimizer is not compiled for all processors.
  future: {faster: {swcJsLoader: true, swcJsMinimizer: true, lightningCssMinimizer: true, rspackBundler: true, swcHtmlMinimizer: false}},
  i18n: {defaultLocale: 'en', locales: ['en', 'de']},
  presets: [
    [
      'classic',
      {
        docs: {routeBasePath: '/'},
        blog: false,
        pages: false,
        sitemap: false,
        theme: {customCss: './custom.css'},
      },
    ],
  ],
  plugins: [
    [
      'recto-docusaurus',
      {
        collection: isStatic ? 'docusaurus-static' : {en: 'docusaurus-house', de: 'docusaurus-haus'},
        ...(isStatic ? {static: true} : {key: 'recto_pk_of-the-test'}),
        strings: {search: 'Search'},
      },
    ],
  ],
  themeConfig: {
    colorMode: {respectPrefersColorScheme: true},
    navbar: {title: 'House'},
  },
};
