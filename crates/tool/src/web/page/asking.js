// Requests to the program that serves this page. Pages of other sites cannot send the header.

export async function ask(what, words = {}) {
  const query = new URLSearchParams(words);
  try {
    const response = await fetch(`/api/${what}?${query}`, { headers: { "X-Bloomgate": "page" }, cache: "no-store" });
    return await response.json();
  } catch {
    return { error: "The program that serves this page has stopped: start bloomgate web again.", isGone: true };
  }
}
