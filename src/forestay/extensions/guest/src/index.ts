// The prelude: it is evaluated once; the snapshot of that VM is the start of every extension.

import "./primordials";
import "./bridge";
import "./modules";
import "./loop";
import "./chance";
import "./globals/index";
import "@forestay/stubs";
import "./virtual/index";
import "./pi";
import "./entry";
