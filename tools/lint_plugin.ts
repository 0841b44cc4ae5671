/**
 * Lint rules of this project, as a plugin of `deno lint`.
 *
 * @module
 */
import { importProblem, isPurePath, isTestPath, rowOf } from "./layers.ts";
import { ROOT } from "./project_files.ts";

type Context = Deno.lint.RuleContext;
type Fence = (path: string, context: Context) => Deno.lint.LintVisitor;

/** Clocks, timers, randomness and the machine: globals that a pure file must not use. */
const IMPURE_GLOBALS = new Set([
  "Deno",
  "globalThis",
  "fetch",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "queueMicrotask",
  "performance",
  "crypto",
  "process",
  "Temporal",
]);
/** Node modules that only compute. */
const PURE_NODE_MODULES = new Set(["node:crypto", "node:buffer", "node:util"]);

function isShipped(path: string): boolean {
  return /^(lib\/|main\.ts$|mod\.ts$)/.test(path) && !isTestPath(path);
}

/** True if the identifier refers to the global itself, not to a property or key with the same name. */
function isReference(node: Deno.lint.Identifier): boolean {
  const parent = node.parent;
  if (parent.type === "MemberExpression") return parent.object === node || parent.computed;
  if (parent.type === "Property") return parent.value === node;
  const declares = [
    "MethodDefinition",
    "PropertyDefinition",
    "TSPropertySignature",
    "TSMethodSignature",
    "ImportSpecifier",
  ];
  return !declares.includes(parent.type);
}

function memberName(node: Deno.lint.MemberExpression): string {
  const property = node.property;
  const name = property.type === "Identifier" && !node.computed
    ? property.name
    : property.type === "Literal"
    ? String(property.value)
    : "";
  return node.object.type === "Identifier" ? `${node.object.name}.${name}` : `.${name}`;
}

/** Calls `check` for every import of the file: static, re-exported and dynamic. */
function onImports(check: (specifier: string, node: Deno.lint.Node) => void): Deno.lint.LintVisitor {
  return {
    ImportDeclaration: (node) => check(node.source.value, node),
    ExportNamedDeclaration: (node) => {
      if (node.source !== null) check(node.source.value, node);
    },
    ExportAllDeclaration: (node) => check(node.source.value, node),
    ImportExpression: (node) => {
      if (node.source.type === "Literal") check(String(node.source.value), node);
    },
    TSImportType: (node) => {
      const { argument } = node;
      if (argument.type === "TSLiteralType" && argument.literal.type === "Literal") {
        check(String(argument.literal.value), node);
      }
    },
  };
}

const commandFence: Fence = (path, context) => {
  if (!isShipped(path) || path === "lib/kernel/exec.ts") return {};
  const message = "Programs are started in lib/kernel/exec.ts only";
  return {
    MemberExpression(node) {
      if (memberName(node) === "Deno.Command") context.report({ node, message });
    },
    VariableDeclarator(node) {
      // Destructuring or renaming Deno would bypass this rule.
      if (node.init?.type === "Identifier" && node.init.name === "Deno") context.report({ node, message });
    },
    ...onImports((specifier, node) => {
      if (/^(node:)?child_process$/.test(specifier)) context.report({ node, message });
    }),
  };
};

const emptyCatch: Fence = (_path, context) => {
  const message = "A catch that does nothing hides failures: handle the error or let it through";
  return {
    CatchClause(node) {
      if (node.body.body.length === 0) context.report({ node, message });
    },
    CallExpression(node) {
      if (node.callee.type !== "MemberExpression" || !memberName(node.callee).endsWith(".catch")) return;
      const handler = node.arguments[0];
      if (handler?.type !== "ArrowFunctionExpression" && handler?.type !== "FunctionExpression") return;
      const empty = handler.body?.type === "BlockStatement" && handler.body.body.length === 0;
      if (empty) context.report({ node, message });
    },
  };
};

const layers: Fence = (path, context) => {
  if (!isShipped(path)) return {};
  const refuse = (node: Deno.lint.Node, message: string): void => context.report({ node, message });
  if (rowOf(path) === undefined) {
    return { Program: (node) => refuse(node, "The file belongs to no row of the table in tools/layers.ts") };
  }
  return {
    Program(node) {
      if (path.startsWith("lib/") && isBarrel(node)) {
        refuse(node, "A barrel file: import from the files themselves");
      }
    },
    ...onImports((specifier, node) => {
      const problem = importProblem(path, specifier);
      if (problem !== undefined) refuse(node, `${problem}, see docs/architecture.md`);
    }),
  };
};

/** True for a file that re-exports a whole other one, or does nothing but re-export. */
function isBarrel({ body }: Deno.lint.Program): boolean {
  const passesOn = (node: Deno.lint.Statement): boolean =>
    node.type === "ExportNamedDeclaration" && node.source !== null;
  return body.some(({ type }) => type === "ExportAllDeclaration") ||
    body.some(passesOn) && body.every((node) => passesOn(node) || node.type === "ImportDeclaration");
}

const purity: Fence = (path, context) => {
  if (!isPurePath(path)) return {};
  const refuse = (node: Deno.lint.Node, what: string): void =>
    context.report({
      node,
      message: `${what} in a pure file: rows 1 to 3 decide only, see docs/architecture.md`,
    });
  return {
    Identifier(node) {
      if (IMPURE_GLOBALS.has(node.name) && isReference(node)) refuse(node, node.name);
    },
    MemberExpression(node) {
      const name = memberName(node);
      if (name === "Date.now" || name === "Math.random") refuse(node, name);
    },
    NewExpression(node) {
      const now = node.callee.type === "Identifier" && node.callee.name === "Date" &&
        node.arguments.length === 0;
      if (now) refuse(node, "new Date()");
    },
    CallExpression(node) {
      if (node.callee.type === "Identifier" && node.callee.name === "Date") refuse(node, "Date()");
    },
    ...onImports((specifier, node) => {
      if (specifier.startsWith("node:") && !PURE_NODE_MODULES.has(specifier)) refuse(node, specifier);
    }),
  };
};

/** Packages that few kubeconfigs need, and the files that load them on demand, by `import()`. */
const ON_DEMAND: readonly (readonly [specifier: RegExp, loader: string | null])[] = [
  [/^(npm:\/?)?@kubernetes\/client-node\b/, null],
  [/^(npm:\/?)?openid-client\b/, "lib/source/kube/oidc.ts"],
  [/^(npm:\/?)?socks\b/, "lib/source/kube/tls_transport.ts"],
];

/** Type imports cost nothing: they are erased when the program runs. */
const clientFence: Fence = (path, context) => {
  if (!isShipped(path)) return {};
  const mayType = /^lib\/source\/(decode|kube|snapshot)\//.test(path);
  return onImports((specifier, node) => {
    const loader = ON_DEMAND.find(([name]) => name.test(specifier))?.[1];
    if (loader === undefined) return;
    if (mayType && node.type === "ImportDeclaration" && node.importKind === "type") return;
    if (path === loader && node.type === "ImportExpression") return;
    const loading = loader === null ? "no file loads it" : `only ${loader} loads it, by import()`;
    context.report({ node, message: `${specifier}: folders of lib/source may import types, ${loading}` });
  });
};

const exitFence: Fence = (path, context) => {
  if (path === "main.ts" || !/^(lib|tools)\/|^mod\.ts$/.test(path)) return {};
  return {
    MemberExpression(node) {
      if (!["Deno.exit", "process.exit"].includes(memberName(node))) return;
      context.report({ node, message: "Only main.ts exits: return a status, throw, or set Deno.exitCode" });
    },
  };
};

/** The only file that imports fast-check: it sets the seed of the run. */
const SEEDED = "tests/support/fast_check.ts";

const seedFence: Fence = (path, context) => {
  if (path === SEEDED) return {};
  return onImports((specifier, node) => {
    if (!/^(npm:\/?)?fast-check\b/.test(specifier)) return;
    context.report({ node, message: `Import fast-check from ${SEEDED}: every run tries the same cases` });
  });
};

function rule(fence: Fence): Deno.lint.Rule {
  return { create: (context) => fence(projectPath(context.filename), context) };
}

function projectPath(filename: string): string {
  const path = filename.replace(/^file:\/\//, "");
  return path.startsWith(`${ROOT}/`) ? path.slice(ROOT.length + 1) : path.replace(/^\.?\//, "");
}

const plugin: Deno.lint.Plugin = {
  name: "kproxy",
  rules: {
    "command-fence": rule(commandFence),
    "no-empty-catch": rule(emptyCatch),
    "layers": rule(layers),
    "pure-rows": rule(purity),
    "client-node-fence": rule(clientFence),
    "exit-fence": rule(exitFence),
    "seed-fence": rule(seedFence),
  },
};
export default plugin;
