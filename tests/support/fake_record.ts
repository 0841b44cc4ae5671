/**
 * Records how tests use the fakes of a node's programs, and the fakes' answers, so that the real programs can be run the same way
 * (`tests/e2e/fakes_replay_test.ts`). Nothing is recorded unless the environment names a folder.
 *
 * @module
 */

/** Environment variable with the folder in which each test file leaves a recording. */
export const RECORD_VARIABLE = "KPROXY_RECORD_FAKES";
/** Environment variable with the folder of a whole test run, and the file in it that says that all tests have run. */
export const RECORDED_VARIABLE = "KPROXY_RECORDED_FAKES";
export const RECORDED = "all";
/** Limit of recordings per file: property tests make thousands that are much alike. */
const MOST_OF_A_FILE = 25;

/** One run of a program that worked, or failed for a reason that a kernel has, too. */
export interface RecordedRun {
  readonly argv: readonly string[];
  readonly stdin: string;
  code: number;
  stdout: string;
}

/** All runs of one fake, from an empty state on. */
export interface Recording {
  readonly fake: "iptables" | "nft" | "ipvs";
  readonly file: string;
  readonly runs: readonly RecordedRun[];
  /** Listing program → the final state as the fake lists it. */
  readonly end: Readonly<Record<string, string>>;
}

type State = () => Readonly<Record<string, string>>;

/** A state without empty lists: the fake creates a family's kernel only when it is first used. */
function heldText(state: ReturnType<State>): string {
  return JSON.stringify(Object.fromEntries(Object.entries(state).filter(([, text]) => text !== "")));
}

/** Records the runs of one fake. */
class Recorder {
  readonly #fake: Recording["fake"];
  readonly #state: State;
  readonly #runs: RecordedRun[] = [];
  #end: ReturnType<State> | undefined;
  #isUnderWay = false;
  /** State at first and after the last run, as text: a test may change the fake by hand, which no program could. */
  #known: string;

  constructor(fake: Recording["fake"], state: State) {
    this.#fake = fake;
    this.#state = state;
    this.#known = heldText(state());
  }

  /** Begins to record a run before it works; yields a function to call with its result. Undefined: the run is not recorded. */
  begin(
    argv: readonly string[],
    stdin: string,
  ): ((end: { code: number; stdout: string }) => void) | undefined {
    if (this.#end !== undefined) return undefined;
    // Another run begins in the middle of this one, which no test can provoke in a kernel.
    if (this.#isUnderWay) this.#runs.pop();
    if (this.#isUnderWay || heldText(this.#state()) !== this.#known) {
      // The runs up to there stay valid.
      this.#end = JSON.parse(this.#known);
      return undefined;
    }
    const run: RecordedRun = { argv, stdin, code: 0, stdout: "" };
    this.#runs.push(run);
    this.#isUnderWay = true;
    return ({ code, stdout }) => {
      Object.assign(run, { code, stdout });
      this.#isUnderWay = false;
      this.#known = heldText(this.#state());
    };
  }

  /** Ends the recording: what follows has no reason in a kernel. */
  end(): void {
    this.#end ??= this.#state();
  }

  recording(): Recording {
    const end = this.#end ?? this.#state();
    return { fake: this.#fake, file: Deno.mainModule, runs: this.#runs, end };
  }
}
export type { Recorder };

/** Only tests of a mode's apply folder are replayed. */
const isApplier = /\/lib\/backend\/\w+\/apply\//.test(Deno.mainModule);
const folder = isApplier ? Deno.env.get(RECORD_VARIABLE) ?? "" : "";
const recorders: Recorder[] = [];
if (folder !== "") {
  globalThis.addEventListener("unload", () => {
    const recordings = recorders.map((recorder) => recorder.recording()).filter(({ runs }) =>
      runs.length > 0
    );
    Deno.writeTextFileSync(`${folder}/${crypto.randomUUID()}.json`, JSON.stringify(recordings));
  });
}

/** @param state the fake's state, by listing program */
export function startRecording(fake: Recording["fake"], state: State): Recorder | undefined {
  if (folder === "" || recorders.length >= MOST_OF_A_FILE) return undefined;
  const recorder = new Recorder(fake, state);
  recorders.push(recorder);
  return recorder;
}
