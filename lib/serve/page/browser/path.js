/**
 * The path of a packet: a form, a drawing, and each step.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";
import { ask } from "./api.js";
import { counted } from "./format.js";
import { badge, empty, html, lines, loading, problem, section, serviceLink } from "./parts.js";
import { pathDrawing } from "./path_drawing.js";
import { endOf, leftOut, outcomeList } from "./path_steps.js";
import { hrefOf } from "./route.js";

/** @typedef {import("../../../inspect/trace/trace_report.ts").TraceDocument} TraceDocument */
/** @typedef {NonNullable<TraceDocument["desired"]>["outcomes"][number]} OutcomeDocument */
/** @typedef {{ readonly trace: TraceDocument | null, readonly problem: string, readonly isAsking: boolean }} Answer */

/** @type {Answer} */
const NOTHING = { trace: null, problem: "", isAsking: false };

/** @param {{ query: URLSearchParams }} props */
export function PacketPath({ query }) {
  const [from, to] = [query.get("from") ?? "", query.get("to") ?? ""];
  const [turn, setTurn] = useState(0);
  const answer = useTrace(from, to, turn);
  return html`
    <div class="stack">
      <div class="heading">
        <h1>Packet path</h1>
        <p class="note">
          What becomes of a new connection by the rules that kproxy wants. <code>kproxy trace</code> on the node looks at what
          the kernel holds, too.
        </p>
      </div>
      ${traceForm(from, to, () => setTurn(turn + 1))}
      ${from === "" || to === ""
        ? empty(
          "Where does a packet go?",
          html`<p>Name a source and a destination above. Every Service has a link that fills them in.</p>`,
        )
        : answered(answer)}
    </div>
  `;
}

/**
 * @param {string} from
 * @param {string} to
 * @param {number} turn asks again whenever it changes
 * @returns {Answer}
 */
function useTrace(from, to, turn) {
  const [answer, setAnswer] = useState(NOTHING);
  useEffect(() => {
    if (from === "" || to === "") {
      setAnswer(NOTHING);
      return;
    }
    const end = new AbortController();
    setAnswer(({ trace }) => ({ trace, problem: "", isAsking: true }));
    ask(`trace?${new URLSearchParams({ from, to })}`, end.signal).then(
      (trace) => setAnswer({ trace, problem: "", isAsking: false }),
      (error) => {
        if (end.signal.aborted) return;
        const words = error.status === 503 ? "Too many ask at the moment: try again" : String(error.message);
        setAnswer({ trace: null, problem: words, isAsking: false });
      },
    );
    return () => end.abort();
  }, [from, to, turn]);
  return answer;
}

const PROTOCOLS = [["", "TCP"], ["udp", "UDP"], ["sctp", "SCTP"], ["icmp", "ICMP"]];

/**
 * @param {string} from source, as in the address of the page
 * @param {string} to destination, likewise
 * @param {() => void} again repeats the request with the same source and destination
 */
function traceForm(from, to, again) {
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const form = new FormData(event.currentTarget);
    const [source = "", target = "", chosen = ""] = ["from", "to", "protocol"].map((name) =>
      String(form.get(name) ?? "").trim()
    );
    const hasProtocol = /\/(tcp|udp|sctp|icmp)$/i.test(target) || chosen === "";
    const href = hrefOf("path", { from: source, to: hasProtocol ? target : `${target}/${chosen}` });
    if (location.hash === href) again();
    else location.hash = href;
  };
  const protocol = /\/(udp|sctp|icmp)$/i.exec(to)?.[1]?.toLowerCase() ?? "";
  const target = protocol === "" ? to : to.slice(0, -protocol.length - 1);
  return html`
    <form class="card trace-form" onSubmit=${submit}>
      <label>
        <span>From</span>
        <input
          name="from" required maxLength=${200} defaultValue=${from || "world"} key="from ${from}"
          list="sources"
          autoComplete="off" spellcheck=${false} aria-describedby="from-help" />
        <datalist id="sources">
          <option value="world" />
          <option value="local" />
        </datalist>
        <small id="from-help">an address, an interface, <em>world</em> or <em>local</em> (this node)</small>
      </label>
      <label class="wide">
        <span>To</span>
        <input
          name="to" required maxLength=${300} defaultValue=${target} key="to ${to}"
          placeholder="10.96.0.1:443"
          autoComplete="off" spellcheck=${false} aria-describedby="to-help" />
        <small id="to-help">address:port, [IPv6]:port, or namespace/name:port of a Service</small>
      </label>
      <label>
        <span>Protocol</span>
        <select name="protocol" defaultValue=${protocol} key="protocol ${protocol}">
          ${PROTOCOLS.map(([value, text]) =>
            html`<option key=${value} value=${value} selected=${value === protocol}>${text}</option>`
          )}
        </select>
      </label>
      <button type="submit" class="primary">Follow the packet</button>
    </form>
  `;
}

/** @param {Answer} answer */
function answered({ trace, problem: words, isAsking }) {
  if (words !== "") return problem(words);
  if (trace === null) return loading("the path of the packet");
  const { service, desired, findings, notes } = trace;
  return html`
    <div class="stack ${isAsking ? "stale" : ""}" aria-busy=${isAsking}>
      ${summary(trace)}
      ${findings.map((finding) => problem(finding))}
      ${section({ id: "drawing", title: "Drawn" }, pathDrawing(trace))}
      ${desired !== null && section(
        { id: "steps", title: "Step by step", note: "rules that the packet matches, in order" },
        outcomeList(desired.outcomes),
      )}
      ${service !== null && leftOut(service)}
      ${notes.length > 0 && section({ id: "notes", title: "To be known" }, lines(notes))}
    </div>
  `;
}

/** @param {TraceDocument} trace */
function summary({ service, desired }) {
  const outcomes = desired?.outcomes ?? [];
  const passing = outcomes.filter(({ verdict }) => verdict === "accept").length;
  const words = passing === outcomes.length ? "passes" : passing > 0 ? "passes sometimes" : "does not pass";
  return html`
    <p class="summary" role="status">
      ${badge(words === "passes" ? "good" : "bad", words)}
      <span>${endWords(outcomes)}</span>
      <span class="muted">
        ${service === null
          ? "It is meant for no Service."
          : html`By the ${service.reachedBy} of ${serviceLink(service.name)}`}
      </span>
    </p>
  `;
}

/**
 * The destination of the packet, summed up over all outcomes.
 *
 * @param {readonly OutcomeDocument[]} outcomes
 */
function endWords(outcomes) {
  const [first] = outcomes;
  if (first === undefined) return "";
  const sent = outcomes.filter(({ translatedTo }) => translatedTo !== "");
  const masqueraded = sent.filter(({ masquerade }) => masquerade).length;
  const manner = sent.length === 0
    ? ""
    : masqueraded === sent.length
    ? "; its source becomes the node's"
    : masqueraded === 0
    ? "; its source stays"
    : "; its source becomes the node's on some paths";
  const end = sent.length > 1
    ? `to one of ${counted(sent.length, "endpoint")}`
    : sent.length === 1
    ? `to ${endOf(first)}`
    : endOf(first);
  return `${end}${manner}.`;
}
