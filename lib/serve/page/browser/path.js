/**
 * The path of a packet: a form, a drawing, and each step.
 *
 * @module
 */
import { h } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ask, RefusedError } from "./api.js";
import { Badge, Empty, Loading, Problem, Section, ServiceLink, useIsNarrow } from "./parts.js";
import { counted } from "./format.js";
import { PathDrawing } from "./path_drawing.js";
import { endOf, LeftOut, Outcomes } from "./path_steps.js";
import { hrefOf } from "./route.js";

/** @typedef {import("../page_document.ts").TraceDocument} TraceDocument */
/** @typedef {import("../page_document.ts").OutcomeDocument} OutcomeDocument */
/** @typedef {import("../../status/status_document.ts").StatusDocument} StatusDocument */
/** @typedef {{ readonly trace: TraceDocument | null, readonly problem: string, readonly isAsking: boolean }} Answer */

/** @type {Answer} */
const NOTHING = { trace: null, problem: "", isAsking: false };

/** @param {{ query: URLSearchParams, status: StatusDocument | null }} props */
export function PacketPath({ query, status }) {
  const [from, to] = [query.get("from") ?? "", query.get("to") ?? ""];
  const [turn, setTurn] = useState(0);
  const answer = useTrace(from, to, turn);
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "heading" },
      h("h1", null, "Packet path"),
      h(
        "p",
        { class: "note" },
        "What becomes of a new connection by the rules that kproxy wants. ",
        h("code", null, "kproxy trace"),
        " on the node looks at what the kernel holds, too.",
      ),
    ),
    h(TraceForm, { from, to, again: () => setTurn(turn + 1) }),
    h(Shown, { answer, status, isAsked: from !== "" && to !== "" }),
  );
}

/**
 * @param {string} from
 * @param {string} to
 * @param {number} turn of another one, it is asked again
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
        const words = error instanceof RefusedError && error.status === 503
          ? "Too many ask at the moment: try again"
          : String(error.message);
        setAnswer({ trace: null, problem: words, isAsking: false });
      },
    );
    return () => end.abort();
  }, [from, to, turn]);
  return answer;
}

/**
 * @param {FormData} data of the form
 * @returns {string} where the path of this packet is shown
 */
function hrefOfForm(data) {
  const [from = "", target = "", protocol = ""] = ["from", "to", "protocol"].map((name) =>
    String(data.get(name) ?? "").trim()
  );
  const hasProtocol = /\/(tcp|udp|sctp|icmp)$/i.test(target) || protocol === "";
  return hrefOf("path", { from, to: hasProtocol ? target : `${target}/${protocol}` });
}

/** @param {string} protocol the one that is chosen; blank: TCP */
function protocolField(protocol) {
  return h(
    "label",
    null,
    h("span", null, "Protocol"),
    h(
      "select",
      { name: "protocol", defaultValue: protocol, key: `protocol ${protocol}` },
      [["", "TCP"], ["udp", "UDP"], ["sctp", "SCTP"], ["icmp", "ICMP"]].map(([value, text]) =>
        h("option", { key: value, value, selected: value === protocol }, text)
      ),
    ),
  );
}

/** @param {string} from as the address of the page has it */
function sourceField(from) {
  return h(
    "label",
    null,
    h("span", null, "From"),
    h("input", {
      name: "from",
      required: true,
      maxLength: 200,
      defaultValue: from || "world",
      key: `from ${from}`,
      list: "sources",
      autoComplete: "off",
      spellcheck: false,
      "aria-describedby": "from-help",
    }),
    h("datalist", { id: "sources" }, h("option", { value: "world" }), h("option", { value: "local" })),
    h(
      "small",
      { id: "from-help" },
      "an address, an interface, ",
      h("em", null, "world"),
      " or ",
      h("em", null, "local"),
      " (this node)",
    ),
  );
}

/**
 * @param {string} target without its protocol
 * @param {string} to as the address of the page has it
 */
function targetField(target, to) {
  return h(
    "label",
    { class: "wide" },
    h("span", null, "To"),
    h("input", {
      name: "to",
      required: true,
      maxLength: 300,
      defaultValue: target,
      key: `to ${to}`,
      placeholder: "10.96.0.1:443",
      autoComplete: "off",
      spellcheck: false,
      "aria-describedby": "to-help",
    }),
    h("small", { id: "to-help" }, "address:port, [IPv6]:port, or namespace/name:port of a Service"),
  );
}

/** @param {{ from: string, to: string, again: () => void }} props */
function TraceForm({ from, to, again }) {
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const form = event.currentTarget;
    if (!(form instanceof HTMLFormElement)) return;
    const href = hrefOfForm(new FormData(form));
    if (location.hash === href) again();
    else location.hash = href;
  };
  const protocol = /\/(udp|sctp|icmp)$/i.exec(to)?.[1]?.toLowerCase() ?? "";
  const target = protocol === "" ? to : to.slice(0, -protocol.length - 1);
  return h(
    "form",
    { class: "card trace-form", onSubmit: submit },
    sourceField(from),
    targetField(target, to),
    protocolField(protocol),
    h("button", { type: "submit", class: "primary" }, "Follow the packet"),
  );
}

/** @param {{ answer: Answer, status: StatusDocument | null, isAsked: boolean }} props */
function Shown({ answer: { trace, problem, isAsking }, isAsked }) {
  const isNarrow = useIsNarrow();
  if (problem !== "") return h(Problem, null, problem);
  if (!isAsked) {
    return h(
      Empty,
      { title: "Where does a packet go?" },
      h("p", null, "Name a source and a destination above. Every Service has a link that fills them in."),
    );
  }
  if (trace === null) return h(Loading, { what: "the path of the packet" });
  const { service, desired, findings, notes } = trace;
  return h(
    "div",
    { class: `stack ${isAsking ? "stale" : ""}`, "aria-busy": isAsking },
    h(Summary, { trace }),
    findings.map((finding) => h(Problem, { key: finding }, finding)),
    h(Section, { id: "drawing", title: "Drawn", class: "drawing" }, h(PathDrawing, { trace, isNarrow })),
    desired === null ? null : h(
      Section,
      { id: "steps", title: "Step by step", note: "rules that the packet matches, in order" },
      h(Outcomes, { outcomes: desired.outcomes }),
    ),
    service === null ? null : h(LeftOut, { service }),
    notes.length === 0 ? null : h(
      Section,
      { id: "notes", title: "To be known" },
      h("ul", { class: "lines" }, notes.map((note) => h("li", { key: note }, note))),
    ),
  );
}

/** @param {{ trace: TraceDocument }} props */
function Summary({ trace: { service, desired } }) {
  const outcomes = desired?.outcomes ?? [];
  const passing = outcomes.filter(({ verdict }) => verdict === "accept");
  const isFine = passing.length === outcomes.length;
  return h(
    "p",
    { class: "summary", role: "status" },
    h(
      Badge,
      { tone: isFine ? "good" : "bad" },
      isFine ? "passes" : passing.length > 0 ? "passes sometimes" : "does not pass",
    ),
    h("span", null, endWords(outcomes)),
    service === null ? h("span", { class: "muted" }, "It is meant for no Service.") : h(
      "span",
      { class: "muted" },
      `By the ${service.reachedBy} of `,
      h(ServiceLink, { name: service.name }),
    ),
  );
}

/**
 * Where it ends, of all ways together.
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
    : "; its source becomes the node's on some ways";
  const end = sent.length > 1
    ? `to one of ${counted(sent.length, "endpoint")}`
    : sent.length === 1
    ? `to ${endOf(first)}`
    : endOf(first);
  return `${end}${manner}.`;
}
