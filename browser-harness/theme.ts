// Dark, light, or as the system has it. The choice is kept in this browser.
export type Theme = 'auto' | 'light' | 'dark';
export const themes: readonly (readonly [Theme, string])[] = [
  ['auto', 'auto'],
  ['light', 'light'],
  ['dark', 'dark'],
];
const key = 'shaderl-theme';

const systemIsDark = matchMedia('(prefers-color-scheme: dark)');

export function themeNow(): Theme {
  try {
    const kept = localStorage.getItem(key);
    return kept === 'light' || kept === 'dark' ? kept : 'auto';
  } catch {
    // A page from a disk may have no storage.
    return 'auto';
  }
}

export function chooseTheme(theme: Theme): void {
  const dark = theme === 'dark' || (theme === 'auto' && systemIsDark.matches);
  document.documentElement.dataset['theme'] = dark ? 'dark' : 'light';
  try {
    localStorage.setItem(key, theme);
  } catch {
    // Then it holds for this page alone.
  }
}

/** Follows the system while the choice is `auto`, and calls `changed` after each change. */
export function onSystemTheme(changed: () => void): void {
  systemIsDark.addEventListener('change', () => {
    if (themeNow() !== 'auto') return;
    chooseTheme('auto');
    changed();
  });
}
