/**
 * What tests say to the fakes of a node's programs, and what these answer, written down so that the real programs can be asked the same
 * (`tests/e2e/fakes_replay_test.ts`). Nothing is written unless the environment names a folder.
 *
 * @module
 */

/** The environment's variable that names the folder; each test file leaves a file there. */
export const RECORD_VARIABLE = "KPROXY_RECORD_FAKES";
/** The environment's variable that names the folder of a run of all tests, and the file there that says that all of them have run. */
export const RECORDED_VARIABLE = "KPROXY_RECORDED_FAKES";
export const RECORDED = "all";
/** Laws make thousands; those of one file are much alike. */
const MOST_OF_A_FILE = 25;

/** One start of a program that did its work, or refused to for a reason that a kernel has, too. */
export interface RecordedRun {
  readonly argv: readonly string[];
  readonly stdin: string;
  code: number;
  stdout: string;
}

/** Everything that one fake did, from nothing on. */
export interface Recording {
  readonly fake: "iptables" | "nft" | "ipvs";
  readonly file: string;
  readonly runs: readonly RecordedRun[];
  /** Program → what it lists of the end, as the fake prints it. */
  readonly end: Readonly<Record<string, string>>;
}

type State = () => Readonly<Record<string, string>>;

/** A state without what holds nothing: a fake makes the kernel of a family when it is first asked for it. */
function heldText(state: ReturnType<State>): string {
  return JSON.stringify(Object.fromEntries(Object.entries(state).filter(([, text]) => text !== "")));
}

/** Writes down what one fake does. */
class Recorder {
  readonly #fake: Recording["fake"];
  readonly #state: State;
  readonly #runs: RecordedRun[] = [];
  #end: ReturnType<State> | undefined;
  #isUnderWay = false;
  /** What it held at first and after the last run, as text: a fake that a test changes by hand does what no program can. */
  #known: string;

  constructor(fake: Recording["fake"], state: State) {
    this.#fake = fake;
    this.#state = state;
    this.#known = heldText(state());
  }

  /** To be called before the run does its work; what is returned, when its end is known. Undefined: this run is not written down. */
  begin(
    argv: readonly string[],
    stdin: string,
  ): ((end: { code: number; stdout: string }) => void) | undefined {
    if (this.#end !== undefined) return undefined;
    // Another process comes in the middle of it, as no test can have it of a kernel.
    if (this.#isUnderWay) this.#runs.pop();
    if (this.#isUnderWay || heldText(this.#state()) !== this.#known) {
      // The runs up to there are as good as before.
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

  /** What comes now has no kernel's reason. */
  end(): void {
    this.#end ??= this.#state();
  }

  recording(): Recording {
    const end = this.#end ?? this.#state();
    return { fake: this.#fake, file: Deno.mainModule, runs: this.#runs, end };
  }
}
export type { Recorder };

/** Only what the tests of a mode's applier say is replayed. */
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

/** @param state what the fake holds, by the program that lists it */
export function startRecording(fake: Recording["fake"], state: State): Recorder | undefined {
  if (folder === "" || recorders.length >= MOST_OF_A_FILE) return undefined;
  const recorder = new Recorder(fake, state);
  recorders.push(recorder);
  return recorder;
}
