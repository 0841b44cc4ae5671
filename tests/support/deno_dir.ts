/** Where the runtime keeps what it has downloaded and translated. */
export async function denoDir(): Promise<string> {
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).output();
  return (JSON.parse(new TextDecoder().decode(stdout)) as { readonly denoDir: string }).denoDir;
}
