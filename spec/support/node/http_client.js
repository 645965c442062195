// Node's fetch and http.Agent against a server with the handlers of spec/support/http_handlers.lua. Prints "done".
'use strict'

const assert = require('assert')
const http = require('http')

const port = Number(process.argv[2])
const base = `http://localhost:${port}`

async function fetches () {
  for (let i = 0; i < 20; i++) assert.strictEqual(await (await fetch(`${base}/echo/${i}`)).text(), `${i} 0`)
  const texts = await Promise.all(Array.from({ length: 50 }, async (_, i) => (await fetch(`${base}/echo/${i}`)).text()))
  texts.forEach((text, i) => assert.strictEqual(text, `${i} 0`))
  const lines = await (await fetch(`${base}/stream/1000`)).text()
  assert.strictEqual(lines.split('\n').length, 1001)
  const missing = await fetch(`${base}/nothing`, { method: 'DELETE' })
  assert.strictEqual(missing.status, 404)
  const put = await fetch(`${base}/length`, { method: 'PUT', body: 'x'.repeat(1000000) })
  assert.strictEqual(await put.text(), '1000000')
  const head = await fetch(`${base}/text`, { method: 'HEAD' })
  assert.strictEqual(head.headers.get('content-length'), '10')
}

async function uploadsAStream () {
  const body = new ReadableStream({
    start (controller) {
      for (let i = 0; i < 100; i++) controller.enqueue(new Uint8Array(10000))
      controller.close()
    }
  })
  const answer = await fetch(`${base}/parts`, { method: 'POST', body, duplex: 'half' })
  assert.strictEqual(await answer.text(), '1000000')
}

async function abortsAStream () {
  const abort = new AbortController()
  const answer = await fetch(`${base}/held`, { signal: abort.signal })
  const reader = answer.body.getReader()
  assert.strictEqual(Buffer.from((await reader.read()).value).toString(), 'first\n')
  abort.abort()
  await assert.rejects(reader.read())
}

function ask (agent, path) {
  return new Promise((resolve, reject) => {
    http.get({ agent, port, path }, (answer) => {
      let text = ''
      const { localPort } = answer.socket
      answer.on('data', (part) => { text += part })
      answer.on('end', () => resolve({ text, port: localPort }))
    }).on('error', reject)
  })
}

async function keepsConnections () {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 })
  const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => ask(agent, `/echo/${i}`)))
  answers.forEach((answer, i) => assert.strictEqual(answer.text, `${i} 0`))
  assert.strictEqual(new Set(answers.map((answer) => answer.port)).size, 4)
  agent.destroy()
}

async function main () {
  await fetches()
  await uploadsAStream()
  await abortsAStream()
  await keepsConnections()
  console.log('done')
}

main().then(() => process.exit(0), (failure) => {
  console.error(failure)
  process.exit(1)
})
