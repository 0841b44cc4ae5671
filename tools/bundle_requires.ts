/**
 * Runtime modules (`node:util`) that packages of a bundle load by `require`. `node:module`, which has `require`, and the first
 * of the others take several milliseconds of a start; packages load them at once, but use them in rare cases only.
 *
 * @module
 */

/** File of the bundle with a `createRequire` that replaces `node:module`'s. */
export const REQUIRE_FILE = "loader.js";

const OF_RUNTIME = /(?<=\}\s*from\s*)"node:module"/g;
/** As long as the text that it replaces, so that columns stay. */
const OF_BUNDLE = `"./${REQUIRE_FILE}"`;

/** A file of the bundle whose packages load runtime modules on first use. */
export function deferRequires(text: string): string {
  return text.replaceAll(OF_RUNTIME, OF_BUNDLE);
}

/**
 * Text of {@linkcode REQUIRE_FILE}. For modules whose members are looked up at each use, `require` returns a proxy that loads them then;
 * others are loaded at once. Environment variables are read as always, without a module.
 */
export const REQUIRE_TEXT = `let real;
const load=(url,name)=>(real??=process.getBuiltinModule("node:module").createRequire(url))(name);
const env=new Proxy({},{get:(_,name)=>Deno.env.get(String(name))});
const deferred=(url,name)=>new Proxy({},{
get:(_,key)=>name==="node:process"&&key==="env"?env:load(url,name)[key],
has:(_,key)=>key in load(url,name)});
const DEFERRED=new Set(["node:buffer","node:process","node:util"]);
export const createRequire=(url)=>(name)=>DEFERRED.has(name)?deferred(url,name):load(url,name);
`;
