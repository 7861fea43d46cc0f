// Where the page is: a view and its parameters, in the address after `#`, so that every place can be linked to.
// Not a history of its own: the browser's is used. Invariant: what a view shows follows from the address and the data.

export interface Place {
  view: string;
  params: Record<string, string>;
}

/** Reads `#/view?name=value`. */
export function readPlace(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  return { view: path === '' ? 'run' : path, params: Object.fromEntries(new URLSearchParams(query)) };
}

type Params = Record<string, string | number | null | undefined>;

/** The address of a place; empty and null parameters are left out. */
export function placeUrl(view: string, params: Params = {}): string {
  const kept = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${query === '' ? '' : `?${query}`}`;
}

/** Goes to a place, as a link would. */
export function go(view: string, params: Params = {}): void {
  location.hash = placeUrl(view, params);
}

/** Changes the address without a new entry and without drawing anew: a selection inside a view. */
export function note(view: string, params: Params): void {
  history.replaceState(null, '', placeUrl(view, params));
}
