// The packages that exist without being bundled (P5).

import "./tui";
import "./ai";
import "./agent";
