// What a program expects to find on the global object.

import "./encoding";
import "./events";
import "./promise";
import "./url";
import "./streams";
import "./blob";
import "./fetch";
import "./clone";
import "./performance";
import "./intl";
import { defineModule } from "../modules";

// The globals are part of the prelude, so asking for them again changes nothing (Pi §2A.3).
defineModule("pi:polyfills/node_globals", {});
defineModule("pi:polyfills/fetch", {});
