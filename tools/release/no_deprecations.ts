/**
 * Keeps packages' own use of what Node deprecates (`punycode`, by a package for e-mail addresses) from being shown to users who build
 * kproxy. To be imported before them.
 *
 * @module
 */
import process from "node:process";

Object.assign(process, { noDeprecation: true });
