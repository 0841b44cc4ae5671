/**
 * Modules of the runtime (`node:util`) that packages of a bundle ask for by `require`. `node:module`, which has `require`, and the first
 * of the others take a start several milliseconds to load; what packages ask for while they load, they use in rare cases only.
 *
 * @module
 */

/** The file of the bundle that has `createRequire` in the place of `node:module`. */
export const REQUIRE_FILE = "loader.js";

const OF_RUNTIME = /(?<=\}\s*from\s*)"node:module"/g;
/** Of the same length, so that every column of the file stays. */
const OF_BUNDLE = `"./${REQUIRE_FILE}"`;

/** One file of a bundle, whose packages get their modules when they use something of them. */
export function deferRequires(text: string): string {
  return text.replaceAll(OF_RUNTIME, OF_BUNDLE);
}

/**
 * What {@linkcode REQUIRE_FILE} holds. Of the modules whose parts are named at each use, `require` gives what loads them then; all others
 * it loads at once. Variables of the environment are read as always, without a module.
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
