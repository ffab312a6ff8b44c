// Questions to the program that serves this page. The header is what a page of another site cannot send.

export async function ask(what, words = {}) {
  const query = new URLSearchParams(words);
  try {
    const response = await fetch(`/api/${what}?${query}`, { headers: { "X-Bloomgate": "page" }, cache: "no-store" });
    return await response.json();
  } catch {
    return { error: "The program that serves this page has ended: start bloomgate web again.", isGone: true };
  }
}
