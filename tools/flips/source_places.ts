/**
 * What a piece of parsed TypeScript is in its context: a condition, an answer, an early exit, text.
 *
 * @module
 */
import ts from "typescript";

const { SyntaxKind } = ts;
/** Operators whose own flips have the negation among them. */
const COMPARISONS: ReadonlySet<ts.SyntaxKind> = new Set([
  SyntaxKind.EqualsEqualsEqualsToken,
  SyntaxKind.ExclamationEqualsEqualsToken,
  SyntaxKind.LessThanToken,
  SyntaxKind.LessThanEqualsToken,
  SyntaxKind.GreaterThanToken,
  SyntaxKind.GreaterThanEqualsToken,
]);
/** Methods of the language that answer yes or no. */
const PREDICATES = new Set(["has", "includes", "some", "every", "startsWith", "endsWith", "test"]);

function isFunction(node: ts.Node): node is ts.FunctionLikeDeclaration {
  return ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node) || ts.isArrowFunction(node) ||
    ts.isFunctionExpression(node) || ts.isAccessor(node) || ts.isConstructorDeclaration(node);
}

/** Names of the functions, classes and variables around a node, outermost first, with dots between. */
export function placeOf(node: ts.Node): string {
  const names: string[] = [];
  for (let at = node.parent; at !== undefined; at = at.parent) {
    if (ts.isVariableDeclaration(at)) {
      if (ts.isSourceFile(at.parent.parent.parent)) names.unshift(at.name.getText());
    } else if ((isFunction(at) || ts.isClassDeclaration(at)) && at.name !== undefined) {
      names.unshift(at.name.getText());
    }
  }
  return names.join(".");
}

/** True if the node decides an `if`, a loop or a `? :`. */
export function isConditionOf(node: ts.Node): boolean {
  const { parent } = node;
  if (ts.isIfStatement(parent) || ts.isWhileStatement(parent) || ts.isDoStatement(parent)) {
    return parent.expression === node;
  }
  return (ts.isForStatement(parent) || ts.isConditionalExpression(parent)) && parent.condition === node;
}

/** True if the negation of the node is among its own flips. */
export function ownsItsNegation(node: ts.Expression): boolean {
  if (ts.isParenthesizedExpression(node)) return ownsItsNegation(node.expression);
  if (ts.isPrefixUnaryExpression(node)) return node.operator === SyntaxKind.ExclamationToken;
  return ts.isBinaryExpression(node) && COMPARISONS.has(node.operatorToken.kind);
}

function looksBoolean(node: ts.Expression): boolean {
  if (ts.isParenthesizedExpression(node)) return looksBoolean(node.expression);
  if (node.kind === SyntaxKind.TrueKeyword || node.kind === SyntaxKind.FalseKeyword) return true;
  if (ts.isBinaryExpression(node)) {
    const { kind } = node.operatorToken;
    const isLogical = kind === SyntaxKind.AmpersandAmpersandToken || kind === SyntaxKind.BarBarToken;
    return COMPARISONS.has(kind) || isLogical && looksBoolean(node.left) && looksBoolean(node.right);
  }
  if (ts.isPrefixUnaryExpression(node)) return node.operator === SyntaxKind.ExclamationToken;
  return ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression) &&
    PREDICATES.has(node.expression.name.text);
}

/** True if the node is what a function answers and that is true or false, by the function's type or by its own looks. */
export function answersBoolean(node: ts.Node): boolean {
  const { parent } = node;
  const isBody = ts.isArrowFunction(parent) && parent.body === node && !ts.isBlock(node);
  if (!isBody && !(ts.isReturnStatement(parent) && parent.expression === node)) return false;
  let around: ts.Node = parent;
  while (!isFunction(around)) around = around.parent;
  const type = around.type;
  if (type === undefined) return looksBoolean(node as ts.Expression);
  return type.kind === SyntaxKind.BooleanKeyword ||
    ts.isTypePredicateNode(type) && type.assertsModifier === undefined;
}

/** True if the node leaves a function or a round of a loop before its text ends. */
export function isEarlyExit(node: ts.Node): boolean {
  if (ts.isContinueStatement(node)) return true;
  if (ts.isBreakStatement(node)) return !ts.isCaseClause(node.parent) && !ts.isDefaultClause(node.parent);
  if (!ts.isReturnStatement(node)) return false;
  const block = node.parent;
  if (!ts.isBlock(block) || !isFunction(block.parent)) return true;
  return block.statements.at(-1) !== node;
}

/** True if a sum is text, by its looks. */
export function isText(node: ts.Expression): boolean {
  if (ts.isParenthesizedExpression(node)) return isText(node.expression);
  if (ts.isStringLiteralLike(node) || ts.isTemplateExpression(node)) return true;
  return ts.isBinaryExpression(node) && node.operatorToken.kind === SyntaxKind.PlusToken &&
    (isText(node.left) || isText(node.right));
}
