import { assert, assertEquals } from "@std/assert";
import { CommitReader } from "./kernel_events.ts";
import { showsChange } from "./kernel_watch.ts";

/** A message of the kernel about nftables, as netlink(7) frames it, about a chain, set or map of some name. */
function kernelMessage(type: number, place: string, content = ""): Uint8Array {
  const name = new TextEncoder().encode(`${place}\0`);
  const attribute = new Uint8Array(4 + (name.length + 3 & ~3));
  new DataView(attribute.buffer).setUint32(0, 2 << 16 | 4 + name.length, true);
  attribute.set(name, 4);
  const body = new Uint8Array([...attribute, ...Uint8Array.fromHex(content)]);
  const message = new Uint8Array(20 + (body.length + 3 & ~3));
  const view = new DataView(message.buffer);
  view.setUint32(0, 20 + body.length, true);
  view.setUint16(4, 10 << 8 | type, true);
  message.set(body, 20);
  return message;
}

const [NEW_RULE, DELETED_RULE, NEW_ELEMENT, DELETED_ELEMENT, NEW_GENERATION] = [6, 8, 12, 14, 15] as const;

Deno.test("the kernel's messages become commits, in which a change is found by its address", {
  permissions: "none",
}, () => {
  const first = new Uint8Array([
    ...kernelMessage(NEW_ELEMENT, "service-ips", "080001000a60000100010000"),
    ...kernelMessage(DELETED_ELEMENT, "endpoints", "0a80000b"),
  ]);
  const second = new Uint8Array([
    ...kernelMessage(NEW_RULE, "KUBE-SEP-ABC", "080001000a80000c"),
    // Written anew, with one left out.
    ...kernelMessage(DELETED_RULE, "KUBE-SERVICES", "0a60000d"),
    ...kernelMessage(DELETED_RULE, "KUBE-SERVICES", "0a60000e"),
    ...kernelMessage(NEW_RULE, "KUBE-SERVICES", "0a60000e"),
    ...kernelMessage(NEW_GENERATION, ""),
    ...kernelMessage(NEW_GENERATION, ""),
  ]);
  const reader = new CommitReader();
  assertEquals([...reader.read(first)], []);
  const [commit, empty] = [...reader.read(second)];
  assert(commit !== undefined && empty !== undefined);
  assertEquals(commit.added, ["service-ips 0a600001", "KUBE-SEP-ABC 0a80000c", "KUBE-SERVICES 0a60000e"]);
  const shown = (kind: "added" | "deleted", ip: string): boolean => showsChange(commit, { kind, ip });
  assertEquals([shown("added", "10.96.0.1"), shown("added", "10.128.0.12")], [true, true]);
  assertEquals([shown("deleted", "10.128.0.11"), shown("deleted", "10.128.0.12")], [true, false]);
  assertEquals([shown("deleted", "10.96.0.13"), shown("deleted", "10.96.0.14")], [true, false]);
  assertEquals([empty.added, empty.deleted], [[], []]);
});
