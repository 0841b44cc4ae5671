import { assertEquals } from "@std/assert";
import { serviceHealthAnswer } from "./service_health_answer.ts";

Deno.test("200 only with a local endpoint and a healthy proxy", { permissions: "none" }, () => {
  const cases: [endpoints: number, healthy: boolean, status: number][] = [
    [2, true, 200],
    [1, true, 200],
    [0, true, 503],
    [2, false, 503],
    [0, false, 503],
  ];
  for (const [endpoints, healthy, status] of cases) {
    const response = serviceHealthAnswer("shop/web", endpoints, healthy);
    assertEquals(response.status, status, `${endpoints} ${healthy}`);
    assertEquals(response.headers.get("x-load-balancing-endpoint-weight"), String(endpoints));
  }
});

Deno.test("the body and the headers are kube-proxy's, also with 503", { permissions: "none" }, async () => {
  for (const [endpoints, healthy] of [[1, true], [0, true], [3, false]] as const) {
    const response = serviceHealthAnswer("edge/ingress", endpoints, healthy);
    assertEquals(
      await response.text(),
      `{\n\t"service": {\n\t\t"namespace": "edge",\n\t\t"name": "ingress"\n\t},\n` +
        `\t"localEndpoints": ${endpoints},\n\t"serviceProxyHealthy": ${healthy}\n}`,
    );
    assertEquals(response.headers.get("content-type"), "application/json");
    assertEquals(response.headers.get("x-content-type-options"), "nosniff");
  }
});
