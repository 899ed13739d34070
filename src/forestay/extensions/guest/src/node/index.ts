// Node's modules and globals, over the bridge.

import "./path";
import "./events";
import "./buffer";
import "./util";
import "./assert";
import "./small";
import "./diagnostics_channel";
import "./stream";
import "./process";
import "./fs";
import "./child_process";
import "./crypto";
import "./others";
import "./net";
import "./dns";
import "./undici";
