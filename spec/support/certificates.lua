--- Certificates of all kinds, valid and invalid, made once by the openssl command, in a directory that is removed at
-- the end of the run. Independent certificates are made in parallel.

local busted = require "busted"

local files = require "spec.support.files"
local shell = require "spec.support.shell"

local CONFIG = [[
[ca]
default_ca = own
[own]
database = $ENV::D/index.txt
serial = $ENV::D/serial
new_certs_dir = $ENV::D
default_md = sha256
policy = any
preserve = yes
unique_subject = no
default_crl_days = 3650
email_in_dn = no
[keyed]
authorityKeyIdentifier = keyid:always
[any]
commonName = supplied
organizationName = optional
[req]
distinguished_name = name
[name]
]]

-- make NAME AUTHORITY FROM TO EXTENSIONS... makes NAME.pem and NAME.key, signed by AUTHORITY, or by itself with "self".
-- The subject has the common name NAME, and the parts in $MORE.
local SCRIPT = [[
cd "$1"; export D=. MORE=
key() {
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null
}
make() {
  name=$1 authority=$2 from=$3 to=$4; shift 4
  mkdir "$name.d"; : >"$name.d/index.txt"; od -An -N8 -tx8 /dev/urandom | sed 's/ *./1/' >"$name.d/serial"
  printf '%s\n' "$@" >"$name.d/extensions"
  [ -f "$name.key" ] || key "$name"
  openssl req -new -config config -key "$name.key" -utf8 -subj "/CN=$name$MORE" -out "$name.d/request"
  by="-cert $authority.pem -keyfile $authority.key"
  [ "$authority" = self ] && by="-selfsign -keyfile $name.key"
  D=$name.d openssl ca -config config -batch -notext -startdate "$from" -enddate "$to" -in "$name.d/request" $by \
    -extfile "$name.d/extensions" -out "$name.pem" 2>"$name.d/log" || { cat "$name.d/log"; exit 1; }
}
revoke() { # AUTHORITY CERTIFICATE LIST: a list of one
  mkdir "$3.d"; : >"$3.d/index.txt"; echo 01 >"$3.d/serial"
  D=$3.d openssl ca -config config -cert "$1.pem" -keyfile "$1.key" -revoke "$2.pem" 2>/dev/null
  D=$3.d openssl ca -config config -cert "$1.pem" -keyfile "$1.key" -gencrl ${4:-} -out "$3.pem" 2>/dev/null
}
P=20200101000000Z Q=20210101000000Z F=20400101000000Z G=20450101000000Z
H=$(date -u -d '+1 hour' +%Y%m%d%H%M%SZ)
CA='basicConstraints=critical,CA:TRUE subjectKeyIdentifier=hash'
HOSTS=subjectAltName=DNS:localhost,DNS:*.example.test,IP:127.0.0.1,IP:::1

make ca self $P $F $CA & make stranger self $P $F $CA & make old_ca self $P $Q $CA &
make self self $P $F $HOSTS &
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key 2>/dev/null &
wait
make server ca $P $F $HOSTS & make again ca $P $F $HOSTS & make between ca $P $F $CA & make rsa ca $P $F $HOSTS &
make expired ca $P $Q $HOSTS & make future ca $F $G $HOSTS & make other ca $P $F subjectAltName=DNS:other.test &
make nameless ca $P $F keyUsage=digitalSignature &
make strange stranger $P $F $HOSTS & make orphan old_ca $P $F $HOSTS &
make alice ca $P $F subjectAltName=DNS:alice.test & make bob ca $P $F subjectAltName=DNS:bob.test &
make mallory stranger $P $F subjectAltName=DNS:alice.test & make late ca $P $Q subjectAltName=DNS:alice.test &
make brief ca $P $H $HOSTS &
(MORE='/O=admins/OU=west/O=grün'; make carol ca $P $F $HOSTS) &
(MORE=$(printf '/O=%064d' $(seq 100)); make crowded ca $P $F $HOSTS) &
(MORE='/O=first/O=a-nul/O=last'; make zeroed self $P $F $HOSTS) &
make client_only ca $P $F $HOSTS extendedKeyUsage=clientAuth &
make server_only ca $P $F $HOSTS extendedKeyUsage=serverAuth &
wait
make below between $P $F $HOSTS & revoke ca bob crl & revoke ca bob old_crl "-crl_lastupdate $P -crl_nextupdate $Q" &
revoke stranger mallory other_crl & revoke ca between between_crl & revoke ca between keyed_crl "-crlexts keyed" &
openssl x509 -req -in between.d/request -extfile between.d/extensions -CA ca.pem -CAkey ca.key -set_serial 7 \
  -days 3650 -out renewed.pem 2>/dev/null &
openssl pkey -in server.key -aes128 -passout pass:word -out encrypted.key &
wait
cat below.pem between.pem >chain.pem
cp below.key chain.key
cat ca.pem stranger.pem >both.pem
openssl x509 -in zeroed.pem -outform DER | LC_ALL=C sed 's/a-nul/a\x00nul/g' >zeroed.der
openssl x509 -inform DER -in zeroed.der -out zeroed.pem
cat ca.pem between.pem >bundle.pem
sed 's/^M[A-Za-z]/MI*/' server.pem >malformed.pem
{ cat server.pem; sed -n '1,3p' ca.pem; } >cut.pem
echo 'no certificate' >empty.pem
ls *.pem *.key | wc -l
]]

-- The path is in the registry, since each spec file loads this module again.
local NAME = "spec.support.certificates"

local certificates = {}

local registry = debug.getregistry()

local function remove()
  if registry[NAME] then shell.must("rm -rf " .. registry[NAME]) end
  registry[NAME] = nil
  return nil, true
end

--- Returns the directory with NAME.pem and NAME.key of all certificates.
function certificates.directory()
  if registry[NAME] then return registry[NAME] end
  local path = shell.must("mktemp -d")
  busted.subscribe({ "suite", "end" }, remove)
  registry[NAME] = path
  files.write(path .. "/config", CONFIG)
  files.write(path .. "/script", SCRIPT)
  shell.must(("sh -e %s/script %s"):format(path, path))
  return path
end

--- Returns the path of a certificate, and the path of its key.
function certificates.paths(name)
  local path = certificates.directory() .. "/" .. name
  return path .. ".pem", path .. ".key"
end

--- Returns the text of a file of the directory.
function certificates.text(name) return files.read(certificates.directory() .. "/" .. name) end

return certificates
