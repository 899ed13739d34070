// The prelude: evaluated once, then the whole VM is kept as a snapshot from which every extension starts.

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
