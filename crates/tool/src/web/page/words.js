// Formats numbers for people.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 14 });

// 1,234,567; from a hundred million 123 M.
export function count(number) {
  if (number === null || number === undefined) return "";
  if (Math.abs(number) < 1e8) return grouped.format(Math.round(number));
  return scaled(number, 1000, ["", " k", " M", " G", " T", " P", " E"]);
}

// A number with a noun: 1 key, 2 keys.
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function bytes(number) {
  if (number === null || number === undefined) return "";
  return scaled(number, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]);
}

function scaled(number, base, units) {
  let power = 0;
  while (Math.abs(number) >= base && power < units.length - 1) {
    number /= base;
    power++;
  }
  return digits(number) + units[power];
}

// Three significant digits without trailing zeros.
function digits(number) {
  if (number === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(number)));
  return grouped.format(Number(number.toFixed(Math.max(0, Math.min(12, 2 - size)))));
}

// A share (0 to 1) as a percentage with two significant digits: 0.97%, 12%, 0.000031%.
export function percent(share) {
  if (share === null || share === undefined) return "";
  const number = share * 100;
  if (number === 0) return "0%";
  if (number < 1e-9) return `${number.toExponential(1)}%`;
  const size = Math.floor(Math.log10(Math.abs(number)));
  return `${grouped.format(Number(number.toFixed(Math.max(0, Math.min(14, 1 - size)))))}%`;
}

// As above, but a tiny share is shown as <0.0001%.
export const aboutPercent = (share) => (share > 0 && share < 1e-6 ? "<0.0001%" : percent(share));

export const perSecond = (number) => (number === null ? "" : `${digits(number)}/s`);

export function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([length]) => seconds >= length);
  if (first < 0) return `${digits(seconds)} s`;
  const [length, name] = units[first];
  const whole = Math.floor(seconds / length);
  const rest = units[first + 1] ? Math.floor((seconds % length) / units[first + 1][0]) : 0;
  return `${whole} ${name}${rest ? ` ${rest} ${units[first + 1][1]}` : ""}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function moment(ms) {
  const time = new Date(ms);
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? clock(ms) : `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(ms)}`;
}

const two = (number) => String(number).padStart(2, "0");

// Text as hexadecimal, two digits per byte.
export function hexadecimal(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
