"""Where this machine's verdict and profile are, and whose files count.

A verdict is a property of a machine and of one install on it, so it lives outside the install, in a folder named
after it. docs/formats.md has the rules; verify/ and bench write by them.
"""

import hashlib
import json
import os
import pwd
import stat

from .flag import unique

STATE = "SGL_PCIE_STATE"
SYSTEM = "/var/lib/sgl-pcie"
MAX_BYTES = 4 << 20

SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def key(site=SITE):
    """The name of an install's folder: two environments of one machine do not mix."""
    return hashlib.sha256(os.fsencode(os.path.realpath(site))).hexdigest()[:16]


def folders(environ=os.environ, uid=None):
    """State folders to look into; read() says whose file counts. What root proved holds for every user.

    ValueError: one is named that would be another one for whoever is started elsewhere.
    """
    uid = os.geteuid() if uid is None else uid
    if environ.get(STATE):
        if not os.path.isabs(environ[STATE]):
            raise ValueError("$%s is %r, no path that begins with /" % (STATE, environ[STATE]))
        return [environ[STATE]]
    if uid == 0:
        return [SYSTEM]
    try:
        return [os.path.join(pwd.getpwuid(uid).pw_dir, ".local", "state", "sgl-pcie"), SYSTEM]
    except KeyError:  # a container's user without an entry
        return [SYSTEM]


def read(name, schema, site=SITE, environ=os.environ, parse=lambda content: content, holds=None):
    """(what parse() makes of it, path) of the state file of that schema; (None, reason) if there is none that counts.

    parse: raises LookupError, TypeError or ValueError for a damaged one. holds: does nothing that it is bound to differ
    from now? Of two that count one that holds is read, of two of those the newer.
    """
    reason, found = "there is none for this machine", []
    try:
        places = folders(environ)
    except ValueError as error:
        return None, str(error)
    for folder in places:
        path = os.path.join(folder, key(site), name)
        try:
            found.append((*_parsed(path, schema, parse), path))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            reason = "%s: %s" % (path, error)
    if len(found) > 1 and holds is not None:
        found = [file for file in found if holds(file[1])] or found
    return max(found, key=lambda file: file[0])[1:] if found else (None, reason)


def _parsed(path, schema, parse):
    """(when it was written, what parse() makes of it)"""
    content = _json(_read_owned(path))
    if not isinstance(content, dict) or content.get("schema") != schema:
        raise ValueError("not of schema %s" % schema)
    try:
        return str(content.get("created", "")), parse(content)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError("damaged: %s" % error) from None


def _read_owned(path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            raise ValueError("not a file")
        if st.st_uid not in (0, os.geteuid()):
            raise ValueError("belongs to another user, %d" % st.st_uid)
        if st.st_mode & 0o022:
            raise ValueError("others than its owner may write it")
        if st.st_size > MAX_BYTES:
            raise ValueError("larger than %d bytes" % MAX_BYTES)
        return file.read(MAX_BYTES)


def _json(data):
    def refuse(constant):
        raise ValueError("%s is no JSON" % constant)

    return json.loads(data.decode(), parse_constant=refuse, object_pairs_hook=unique)
