/**
 * How evenly connections are spread over endpoints (`tests/support/web_spread.ts`). IPVS mode goes through the same in
 * `tests/lab/ipvs_suites_in_uml.ts`.
 *
 * @module
 */
import { LAB_MODES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";
import { SPREADS, spreadsEvenly } from "../support/web_spread.ts";

for (const mode of LAB_MODES) {
  const name = `${SPREADS[mode.name].requests[0]} connections are spread evenly, ${mode.name}`;
  e2eTest(name, [...WEB_NEEDS, ...mode.needs], async (t) => {
    await using web = await WebLab.create(mode);
    await spreadsEvenly(t, web);
  });
}
