"""Authorities, certificates and revocation lists for `mutual-tls` and `upstream-tls`, made with openssl."""
import pathlib
import subprocess

CONF = """
[ca]
default_ca = it
[it]
dir = {dir}
database = {dir}/index
serial = {dir}/serial
crlnumber = {dir}/crlnumber
new_certs_dir = {dir}
certificate = {certificate}
private_key = {key}
default_md = sha256
default_days = 3650
default_crl_days = 3650
policy = any
unique_subject = no
copy_extensions = none
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""
AUTHORITY = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign", "subjectKeyIdentifier=hash")
LEAF = ("basicConstraints=CA:FALSE",)
EXPIRED = ("20200101000000Z", "20210101000000Z")
FUTURE = ("20900101000000Z", "20910101000000Z")


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"openssl {words[0]}: {done.stderr}")


class Certificate:
    """A certificate with its key, and the certificates of the authorities between it and a root."""

    def __init__(self, directory, name, chain=()):
        self.path = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"
        self.chain = chain
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key)

    def bundle(self, chain=True):
        """A file with the certificate, its key, and if so wanted its chain."""
        path = self.path.with_suffix(".chained" if chain else ".alone")
        parts = [self.path, self.key, *(it.path for it in self.chain if chain)]
        path.write_text("".join(part.read_text() for part in parts))
        return path


class Authority(Certificate):
    """A certificate that issues others; of its own (a root) or of another's."""

    def __init__(self, directory, name, issuer=None, subject=None, dates=None, chain=()):
        super().__init__(directory, name, chain)
        self.directory = directory
        self.books = directory / f"{name}.books"
        self.books.mkdir()
        for file, text in {"index": "", "serial": "1000\n", "crlnumber": "01\n"}.items():
            self.books.joinpath(file).write_text(text)
        self.conf = self.books / "conf"
        self.conf.write_text(CONF.format(dir=self.books, certificate=self.path, key=self.key))
        (issuer or self).sign(self, subject or name, AUTHORITY, dates, own=issuer is None)

    def sign(self, what, subject, extensions, dates=None, own=False):
        request, file = what.path.with_suffix(".request"), what.path.with_suffix(".extensions")
        openssl("req", "-new", "-config", self.conf, "-key", what.key, "-subj", f"/CN={subject}", "-out", request)
        file.write_text("\n".join(extensions) + "\n")
        span = ("-startdate", dates[0], "-enddate", dates[1]) if dates else ()
        openssl("ca", "-batch", "-notext", "-config", self.conf, "-in", request, "-out", what.path, "-extfile", file,
                *span, *(("-selfsign",) if own else ()))

    def issue(self, name, subject=None, extensions=LEAF, dates=None):
        it = Certificate(self.directory, name, self.upwards())
        self.sign(it, subject or name, extensions, dates)
        return it

    def upwards(self):
        """What a certificate of this authority is sent with: nothing of a root."""
        return (self, *self.chain) if self.chain or self.is_issued else ()

    is_issued = False

    def below(self, name):
        """An authority that this one has issued."""
        it = Authority(self.directory, name, issuer=self, chain=self.upwards())
        it.is_issued = True
        return it

    def revoke(self, certificate):
        openssl("ca", "-config", self.conf, "-revoke", certificate.path)

    def list(self):
        """A new revocation list."""
        path = self.path.with_suffix(".crl")
        openssl("ca", "-gencrl", "-config", self.conf, "-out", path)
        return path


def self_signed(directory, name, extensions=LEAF):
    """A certificate that its own key has signed."""
    it = Authority(directory, name)
    openssl("req", "-x509", "-new", "-config", it.conf, "-key", it.key, "-subj", f"/CN={name}", "-days", "3650",
            "-out", it.path, *(word for one in extensions for word in ("-addext", one)))
    return it


def issued_by_a_leaf(directory, leaf, subject, extensions=LEAF):
    """A certificate whose issuer is no authority."""
    wrong = Authority(directory, "wrong", subject=subject)
    for mine, its in ((wrong.path, leaf.path), (wrong.key, leaf.key)):
        mine.write_bytes(its.read_bytes())
    it = Certificate(directory, "of-a-leaf", (leaf,))
    wrong.sign(it, "of-a-leaf", extensions)
    return it


def join(path, *parts):
    """One file of several."""
    pathlib.Path(path).write_text("".join(pathlib.Path(part).read_text() for part in parts))
    return path
