/**
 * What programs say where this process may not do something.
 *
 * @module
 */

/** Found in a program's standard error. */
export const NO_RIGHTS_REGEXP = /Operation not permitted|Permission denied|must be root/;

/**
 * The list of tables of iptables' legacy variant, which the kernel shows to root only: capabilities over the network do not help, and
 * to name a table instead makes it.
 */
export const LEGACY_LIST_REGEXP =
  /\/proc\/net\/ip6?_tables_names: (?:Operation not permitted|Permission denied)/;
