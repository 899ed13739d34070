// What a program expects to find on the global object.

import "./encoding";
import "./events";
import "./url";
import "./streams";
import "./blob";
import "./fetch";
import "./clone";
import "./performance";
import "./intl";
