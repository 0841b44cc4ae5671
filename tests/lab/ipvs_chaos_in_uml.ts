/**
 * A minute of chaos in mode ipvs, to be run inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_chaos_in_uml.ts'`.
 *
 * @module
 */
import { minuteOfChaos } from "../chaos/minute.ts";

Deno.test("a minute of chaos in mode ipvs", () => minuteOfChaos("ipvs", 34));
