// A web server of node for the HTTP client: argv are files of a certificate, its key and an authority; without them, no
// TLS. Prints its port.
const fs = require('fs')
const zlib = require('zlib')
const [cert, key, ca] = process.argv.slice(2)

const text = Array.from({ length: 20000 }, (_, i) => `line ${i}\n`).join('')
const routes = {
  '/hello': (req, res) => res.end(`hello ${req.headers.name}`),
  '/echo': (req, res) => { res.writeHead(201); req.pipe(res) },
  '/gzip': (req, res) => {
    res.writeHead(200, { 'content-encoding': 'gzip' })
    res.end(zlib.gzipSync(text))
  },
  '/trailers': (req, res) => {
    res.writeHead(200, { trailer: 'sum' })
    res.write('part')
    res.addTrailers({ sum: '4' })
    res.end()
  },
  '/early': (req, res) => { res.writeEarlyHints({ link: '</a>; rel=preload' }); res.end('late') },
  '/moved': (req, res) => { res.writeHead(302, { location: '/hello' }); res.end() },
  '/drop': (req, res) => {
    res.write('begun')
    setTimeout(() => req.stream ? req.stream.session.destroy() : req.socket.destroy(), 10)
  },
  '/close': (req, res) => {
    if (!req.stream) res.setHeader('connection', 'close')
    res.end('last')
  },
  '/who': (req, res) => res.end(req.socket.getPeerCertificate ? req.socket.getPeerCertificate().subject?.CN : 'plain'),
  '/version': (req, res) => res.end(req.httpVersion)
}
const answer = (req, res) => (routes[req.url] || ((_, r) => { r.statusCode = 404; r.end('missing') }))(req, res)
const options = cert && { cert: fs.readFileSync(cert), key: fs.readFileSync(key) }
if (ca) Object.assign(options, { ca: fs.readFileSync(ca), requestCert: true })
const h2 = { allowHTTP1: true, ...options }
const server = cert ? require('http2').createSecureServer(h2, answer) : require('http').createServer(answer)
server.keepAliveTimeout = 100
server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port} `))
