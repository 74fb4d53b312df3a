// Small parts that the page is made of.
export const get = (id) => document.getElementById(id);
export const count = (number) => number.toLocaleString();

export function made(name, text, attributes = {}) {
  const found = document.createElement(name);
  found.textContent = text;
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  return found;
}
