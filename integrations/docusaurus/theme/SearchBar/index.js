// The button in the navigation bar; the widget opens its dialog when it is pressed.

import React, {useEffect, useState} from 'react';
import {usePluginData} from '@docusaurus/useGlobalData';

import styles from './styles.module.css';

const h = React.createElement;

export default function SearchBar() {
  const {label} = usePluginData('recto-docusaurus');
  // The page is rendered without knowing the reader's keyboard.
  const [shortcut, setShortcut] = useState('Ctrl K');
  useEffect(() => {
    const platform = navigator.userAgentData?.platform ?? navigator.platform;
    if (/Mac|iPhone|iPad/u.test(platform)) setShortcut('⌘ K');
  }, []);
  return h(
    'button',
    {type: 'button', className: styles.button, 'data-recto-open': '', 'aria-keyshortcuts': 'Control+K Meta+K'},
    h(
      'svg',
      {className: styles.icon, viewBox: '0 0 20 20', 'aria-hidden': true},
      h('circle', {cx: 8.5, cy: 8.5, r: 5.5}),
      h('path', {d: 'M13 13l4.5 4.5'}),
    ),
    h('span', {className: styles.label}, label),
    h('kbd', {className: styles.shortcut, 'aria-hidden': true}, shortcut),
  );
}
