/**
 * What programs say where this process may not do something.
 *
 * @module
 */

/** Found in a program's standard error. */
export const NO_RIGHTS_REGEXP = /Operation not permitted|Permission denied|must be root/;
