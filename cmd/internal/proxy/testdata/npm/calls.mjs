// node calls.mjs SDK BASE N makes N calls at once with an SDK as it comes, and prints how many of
// them succeeded.
const [sdk, base, n] = process.argv.slice(2)

const makers = {
  async openai() {
    const { default: OpenAI } = await import('openai')
    const client = new OpenAI({ baseURL: base, apiKey: 'key' })
    return () => client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'hello' }] })
  },
  async anthropic() {
    const { default: Anthropic } = await import('@anthropic-ai/sdk')
    const client = new Anthropic({ baseURL: base, apiKey: 'key' })
    return () => client.messages.create({ model: 'm', max_tokens: 10, messages: [{ role: 'user', content: 'hello' }] })
  },
  async octokit() {
    const { Octokit } = await import('octokit')
    const client = new Octokit({ baseUrl: base, auth: 'key' })
    return () => client.request('GET /repos/{owner}/{repo}', { owner: 'a', repo: 'b' })
  },
}

const call = await makers[sdk]()
const results = await Promise.allSettled(Array.from({ length: Number(n) }, call))
const failed = results.filter((r) => r.status === 'rejected')
console.log(JSON.stringify({ ok: results.length - failed.length, error: failed[0] && String(failed[0].reason) }))
