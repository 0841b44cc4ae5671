/**
 * SHA-256 of short texts (FIPS 180-4), for the names of chains and sets.
 *
 * The runtime's own (`node:crypto`) costs a start more to load than all names of 1,000 Services, and for texts of this length twice the
 * time for each; libraries that need no module of the runtime take three times as long as this.
 *
 * @module
 */

const BLOCK_BYTES = 64;
/** A byte that ends the text, and its length in bits. */
const ENDING_BYTES = 9;
const ROUNDS = 64;

const ROUND_CONSTANTS = new Int32Array(ROUNDS);
const INITIAL_HASH = new Int32Array(8);
for (const [index, prime] of firstPrimes(ROUNDS).entries()) {
  ROUND_CONSTANTS[index] = fraction(Math.cbrt(prime));
  if (index < INITIAL_HASH.length) INITIAL_HASH[index] = fraction(Math.sqrt(prime));
}

const encoder = new TextEncoder();
const schedule = new Int32Array(ROUNDS);
let message = new Uint8Array(16 * BLOCK_BYTES);

/** The SHA-256 of a text's UTF-8 form: eight numbers of 32 bits, the first bits first. */
export function sha256(text: string): Int32Array<ArrayBuffer> {
  // A unit of UTF-16 takes three bytes at most.
  const most = 3 * text.length + ENDING_BYTES + BLOCK_BYTES;
  if (message.length < most) message = new Uint8Array(most);
  const { written: length } = encoder.encodeInto(text, message);
  const end = Math.ceil((length + ENDING_BYTES) / BLOCK_BYTES) * BLOCK_BYTES;
  message[length] = 0x80;
  message.fill(0, length + 1, end);
  const view = new DataView(message.buffer, 0, end);
  view.setUint32(end - 8, Math.floor(length / 2 ** 29));
  view.setUint32(end - 4, length << 3);
  const hash = INITIAL_HASH.slice();
  for (let at = 0; at < end; at += BLOCK_BYTES) addBlock(hash, view, at);
  return hash;
}

function addBlock(hash: Int32Array, view: DataView, at: number): void {
  const w = schedule;
  for (let t = 0; t < 16; t++) w[t] = view.getInt32(at + 4 * t);
  for (let t = 16; t < ROUNDS; t++) {
    const x = w[t - 15]!;
    const y = w[t - 2]!;
    const sigma0 = (x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3;
    const sigma1 = (y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10;
    w[t] = sigma1 + w[t - 7]! + sigma0 + w[t - 16]! | 0;
  }
  // Variables of their own: in an array they would take twice the time.
  let a = hash[0]!, b = hash[1]!, c = hash[2]!, d = hash[3]!;
  let e = hash[4]!, f = hash[5]!, g = hash[6]!, h = hash[7]!;
  for (let t = 0; t < ROUNDS; t++) {
    const sum1 = (e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7);
    const one = h + sum1 + (e & f ^ ~e & g) + ROUND_CONSTANTS[t]! + w[t]! | 0;
    const sum0 = (a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10);
    const two = sum0 + (a & b ^ a & c ^ b & c) | 0;
    h = g;
    g = f;
    f = e;
    e = d + one | 0;
    d = c;
    c = b;
    b = a;
    a = one + two | 0;
  }
  hash[0]! += a;
  hash[1]! += b;
  hash[2]! += c;
  hash[3]! += d;
  hash[4]! += e;
  hash[5]! += f;
  hash[6]! += g;
  hash[7]! += h;
}

/** The first 32 bits after the point. */
function fraction(root: number): number {
  return Math.floor((root - Math.floor(root)) * 2 ** 32) | 0;
}

function firstPrimes(count: number): readonly number[] {
  const primes: number[] = [];
  for (let number = 2; primes.length < count; number++) {
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  }
  return primes;
}
