// Makes DOM nodes from plain calls, and a value that views subscribe to. All the framework there is.
// Not a renderer: nothing is compared or kept. Invariant: text goes in as text nodes, never as HTML.

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** An element. `on…` attributes are listeners; true is an empty attribute; false, null and undefined are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes | null = null,
  ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children: readonly (Child | Child[])[]): (Node | string)[] {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === 'number' ? String(child) : (child as Node | string)));
}

/** Replaces what an element holds. */
export function fill(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren(...nodes(children));
}

/** A button; `press` runs on click, and a promise that it gives is reported by the page's error banner if it fails. */
export function button(label: string, press: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return h('button', { type: 'button', onclick: press, ...attributes }, label);
}

/** A label around a control. */
export function labelled(label: string, control: HTMLElement): HTMLLabelElement {
  return h('label', { class: 'field' }, h('span', null, label), control);
}

export function checkbox(label: string, checked: boolean, change: (checked: boolean) => void): HTMLLabelElement {
  const input = h('input', { type: 'checkbox', onchange: () => change(input.checked) });
  input.checked = checked;
  return h('label', { class: 'check' }, input, label);
}

export function select<T extends string>(
  options: readonly (readonly [value: T, label: string])[],
  value: T,
  change: (value: T) => void,
): HTMLSelectElement {
  const list = options.map(([option, label]) => h('option', { value: option }, label));
  const control = h('select', { onchange: () => change(control.value as T) }, list);
  control.value = value;
  return control;
}

/** Saves text as a file of the person's. */
export function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export interface Emitter {
  emit(): void;
  /** Gives the function that ends the subscription. */
  on(listener: () => void): () => void;
}

/** Listeners that are called at most once a frame, however often something changes. */
export function createEmitter(): Emitter {
  const listeners = new Set<() => void>();
  let waiting = false;
  return {
    emit() {
      if (waiting) return;
      waiting = true;
      // A hidden page has no frames; the timer keeps live views moving there too.
      setTimeout(() => {
        waiting = false;
        for (const listener of [...listeners]) listener();
      }, 16);
    },
    on(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
