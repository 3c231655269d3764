// A site that uses the rules of Docusaurus that decide addresses.
const site = require('./site.json');
const {name: unused} = {};
const name = 'torture';

/** @type {import('@docusaurus/types').Config} */
const config = {
  title: site.title,
  url: 'https://books.example',
  baseUrl: '/' + name + '/',
  trailingSlash: undefined,
  onBrokenLinks: 'ignore',
  onBrokenAnchors: 'ignore',
  i18n: {defaultLocale: 'en', locales: ['en', 'fr', 'de'], localeConfigs: {de: {path: 'de-AT', baseUrl: '/deutsch/'}}},
  markdown: {format: 'mdx'},
  presets: [
    [
      '@docusaurus/preset-classic',
      /** @type {import('@docusaurus/preset-classic').Options} */
      ({
        docs: {
          routeBasePath: 'docs',
          exclude: ['**/_*.{js,jsx,ts,tsx,md,mdx}', '**/_*/**', '**/*.test.{js,jsx,ts,tsx}', '**/__tests__/**', 'left-out/**'],
          versions: {current: {label: 'Next'}, '1.0': {path: 'one'}},
        },
        blog: false,
        pages: false,
      }),
    ],
  ],
  plugins: [
    ['@docusaurus/plugin-content-docs', {id: 'labs', path: 'labs', routeBasePath: '/the-labs/', numberPrefixParser: false, sidebarPath: undefined}],
  ],
};

module.exports = config;
